SELECT (SELECT count(*) FROM {memberships} WHERE {member_event:event_id} = :target AND {member_status:status} = 'ACCEPTED'),
       (SELECT count(*) FROM decision_proposals WHERE event_id = :event),
       (SELECT count(*) FROM decision_comments WHERE event_id = :event)
