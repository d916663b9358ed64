DELETE FROM {outbox_events}
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
