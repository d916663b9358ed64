SELECT id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END
FROM {outbox_events}
WHERE position IS NULL AND CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END NOT IN (:held[text])
ORDER BY id
LIMIT :most
