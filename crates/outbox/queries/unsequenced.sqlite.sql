SELECT id, COALESCE(target_event_id, '-')
FROM outbox_events
WHERE position IS NULL AND COALESCE(target_event_id, '-') NOT IN (SELECT value FROM json_each(:held))
ORDER BY id
LIMIT :most
