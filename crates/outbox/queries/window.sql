-- The next rows in their order: who looks for work decides what of it is theirs.
SELECT position, id, COALESCE(target_event_id, '-'), event_type, status, available_at
FROM outbox_events
WHERE position > :after AND position <= (SELECT head.position FROM bongsu_outbox_head head WHERE head.one = 1)
ORDER BY position
LIMIT :most
