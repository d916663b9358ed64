-- Looks without locking anything.
SELECT id, SUBSTR(COALESCE(target_event_id, '-'), 1, 200)
FROM outbox_events FORCE INDEX (outbox_events_order)
WHERE position IS NULL AND NOT JSON_CONTAINS(:held, JSON_QUOTE(SUBSTR(COALESCE(target_event_id, '-'), 1, 200)))
ORDER BY id
LIMIT :most
