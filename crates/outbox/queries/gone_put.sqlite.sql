INSERT INTO bongsu_outbox_gone AS known (target_event_id, position, id)
SELECT value ->> 0, value ->> 1, value ->> 2 FROM json_each(:gone) WHERE true
ON CONFLICT (target_event_id) DO UPDATE SET position = excluded.position, id = excluded.id
WHERE known.position < excluded.position
