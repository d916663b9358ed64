SELECT person_id, body FROM bongsu_inbox_settings
WHERE person_id IN (SELECT value FROM json_each(:people))
