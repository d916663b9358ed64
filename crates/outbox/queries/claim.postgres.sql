UPDATE {outbox_events} SET status = 'PROCESSING', available_at = :until
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
