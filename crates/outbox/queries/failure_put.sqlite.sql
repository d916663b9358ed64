INSERT INTO bongsu_outbox_failures (id, reason)
SELECT value ->> 0, value ->> 1 FROM json_each(:failures) WHERE true
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason
