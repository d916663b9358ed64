-- The next rows in their order: who looks for work decides what of it is theirs.
SELECT position, id, SUBSTR(COALESCE(target_event_id, '-'), 1, 200), SUBSTR(event_type, 1, 200), status, available_at
FROM outbox_events
WHERE position > :after AND position <= (SELECT head.position FROM bongsu_outbox_head head WHERE head.one = 1)
ORDER BY position
LIMIT :most
