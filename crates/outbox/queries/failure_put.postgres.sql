INSERT INTO bongsu_outbox_failures (id, reason)
SELECT (failure ->> 0)::bigint, failure ->> 1 FROM json_array_elements((:failures)::json) AS failure
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason
