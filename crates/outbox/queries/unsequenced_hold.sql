-- Those that nobody else holds, with what has to be looked at before anybody is told.
SELECT id, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END, CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END
FROM {outbox_events}
WHERE id IN (:ids[number]) AND position IS NULL
FOR UPDATE SKIP LOCKED
