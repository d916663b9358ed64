-- Those that nobody else holds, with what has to be looked at before anybody is told.
SELECT id, SUBSTR(event_type, 1, 200), CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END
FROM outbox_events
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json)) AND position IS NULL
FOR UPDATE SKIP LOCKED
