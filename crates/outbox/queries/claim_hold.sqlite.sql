SELECT position, id, target_event_id, event_type, payload, created_at, attempts
FROM outbox_events
WHERE id IN (SELECT value FROM json_each(:ids))
    AND status IN ('PENDING', 'PROCESSING') AND available_at <= :now
