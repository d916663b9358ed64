SELECT id, COALESCE(target_event_id, '-')
FROM outbox_events
WHERE position IS NULL AND COALESCE(target_event_id, '-') NOT IN (SELECT json_array_elements_text((:held)::json))
ORDER BY id
LIMIT :most
