SELECT position, id, SUBSTR(target_event_id, 1, 200), SUBSTR(event_type, 1, 200), CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END, created_at, attempts
FROM outbox_events
WHERE id IN (SELECT value FROM json_each(:ids))
    AND status IN ('PENDING', 'PROCESSING') AND available_at <= :now
