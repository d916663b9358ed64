-- The next rows without a position, except those of held targets. Takes no locks.
SELECT id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END
FROM {outbox_events} FORCE INDEX ({outbox_events_order})
WHERE position IS NULL AND NOT JSON_CONTAINS(:held, JSON_QUOTE(CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END))
ORDER BY id
LIMIT :most
