SELECT id, SUBSTR(COALESCE(target_event_id, '-'), 1, 200)
FROM outbox_events
WHERE position IS NULL AND SUBSTR(COALESCE(target_event_id, '-'), 1, 200) NOT IN (SELECT json_array_elements_text((:held)::json))
ORDER BY id
LIMIT :most
