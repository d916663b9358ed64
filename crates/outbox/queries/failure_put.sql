INSERT INTO bongsu_outbox_failures (id, reason)
SELECT CAST(failure.value ->> 0 AS BIGINT), failure.value ->> 1 FROM (:failures[row]) AS failure
WHERE EXISTS (SELECT 1 FROM {outbox_events} known WHERE known.id = CAST(failure.value ->> 0 AS BIGINT) AND known.status = 'FAILED')
ON CONFLICT (id) DO UPDATE SET reason = excluded.reason
