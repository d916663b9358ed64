INSERT INTO bongsu_outbox_redriven (id)
SELECT value::bigint FROM json_array_elements_text((:ids)::json)
ON CONFLICT DO NOTHING
