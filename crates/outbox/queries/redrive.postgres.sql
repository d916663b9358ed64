UPDATE {outbox_events} SET status = 'PENDING', attempts = 0, available_at = :now
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
    AND status = 'FAILED'
