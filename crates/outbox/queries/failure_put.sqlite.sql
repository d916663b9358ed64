INSERT INTO bongsu_outbox_failures (id, reason)
SELECT value ->> 0, value ->> 1 FROM json_each(:failures) 
WHERE EXISTS (SELECT 1 FROM {outbox_events} known WHERE known.id = value ->> 0 AND known.status = 'FAILED')
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason
