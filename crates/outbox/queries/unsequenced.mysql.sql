-- Looks without locking anything.
SELECT id, COALESCE(target_event_id, '-')
FROM outbox_events FORCE INDEX (outbox_events_order)
WHERE position IS NULL AND NOT JSON_CONTAINS(:held, JSON_QUOTE(COALESCE(target_event_id, '-')))
ORDER BY id
LIMIT :most
