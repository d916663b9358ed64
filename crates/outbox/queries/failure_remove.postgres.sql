DELETE FROM bongsu_outbox_failures WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
