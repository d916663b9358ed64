SELECT id, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END, CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END
FROM {outbox_events}
WHERE id IN (SELECT value FROM json_each(:ids)) AND position IS NULL
