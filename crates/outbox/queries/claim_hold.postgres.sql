-- Those that nobody else is just claiming, by their keys.
SELECT position, id, target_event_id, event_type, CAST(payload AS TEXT), created_at, attempts
FROM outbox_events
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json))
    AND status IN ('PENDING', 'PROCESSING') AND available_at <= :now
FOR UPDATE SKIP LOCKED
