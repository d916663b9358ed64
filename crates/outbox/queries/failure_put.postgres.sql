INSERT INTO bongsu_outbox_failures (id, reason)
SELECT (failure ->> 0)::bigint, failure ->> 1 FROM json_array_elements((:failures)::json) AS failure
WHERE EXISTS (SELECT 1 FROM {outbox_events} known WHERE known.id = (failure ->> 0)::bigint AND known.status = 'FAILED')
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason
