INSERT INTO bongsu_outbox_gone AS known (target_event_id, position, id)
SELECT gone ->> 0, (gone ->> 1)::bigint, (gone ->> 2)::bigint FROM json_array_elements((:gone)::json) AS gone
ORDER BY 1
ON CONFLICT (target_event_id) DO UPDATE SET position = excluded.position, id = excluded.id
WHERE known.position < excluded.position
