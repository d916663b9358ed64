-- Locks rows by their ids, and skips rows that another transaction has locked.
SELECT position, id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END, CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END, created_at, attempts, CASE WHEN OCTET_LENGTH(CAST(traceparent AS TEXT)) <= 64 THEN CAST(traceparent AS TEXT) END
FROM {outbox_events}
WHERE id IN (:ids[number])
    AND status IN ('PENDING', 'PROCESSING') AND available_at <= :now
FOR UPDATE SKIP LOCKED
