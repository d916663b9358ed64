SELECT id, SUBSTR(event_type, 1, 200), CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END
FROM outbox_events
WHERE id IN (SELECT value FROM json_each(:ids)) AND position IS NULL
