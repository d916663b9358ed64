SELECT (SELECT count(*) FROM memberships WHERE event_id = :target AND status = 'ACCEPTED'),
       (SELECT count(*) FROM decision_proposals WHERE event_id = :event),
       (SELECT count(*) FROM decision_comments WHERE event_id = :event)
