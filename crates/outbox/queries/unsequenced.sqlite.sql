SELECT id, target_event_id
FROM outbox_events
WHERE position IS NULL AND target_event_id NOT IN (SELECT value FROM json_each(:held))
ORDER BY id
LIMIT :most
