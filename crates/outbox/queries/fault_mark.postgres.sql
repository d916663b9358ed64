UPDATE {outbox_events} SET status = 'FAILED'
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
    AND status = 'PENDING'
