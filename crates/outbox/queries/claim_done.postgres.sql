UPDATE {outbox_events} SET status = 'DONE', available_at = :now
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
    AND status = 'PROCESSING' AND available_at = :until
