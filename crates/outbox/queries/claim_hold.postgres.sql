-- Those that nobody else is just claiming, by their keys.
SELECT position, id, SUBSTR(target_event_id, 1, 200), SUBSTR(event_type, 1, 200), CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END, created_at, attempts
FROM outbox_events
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
    AND status IN ('PENDING', 'PROCESSING') AND available_at <= :now
FOR UPDATE SKIP LOCKED
