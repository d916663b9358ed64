INSERT INTO bongsu_outbox_gone AS known (target_event_id, position, id)
SELECT value ->> 0, CAST(value ->> 1 AS BIGINT), CAST(value ->> 2 AS BIGINT) FROM (:gone[row]) AS gone WHERE true
ORDER BY 1
ON CONFLICT (target_event_id) DO UPDATE SET position = excluded.position, id = excluded.id
WHERE known.position < excluded.position
