-- Locks rows by their ids, and skips rows that another transaction has locked.
SELECT STRAIGHT_JOIN {outbox_events}.position, {outbox_events}.id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END, CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(payload) <= 65536 THEN CONVERT(payload USING utf8mb4) END, created_at, attempts, CASE WHEN OCTET_LENGTH(traceparent) <= 64 THEN CONVERT(traceparent USING utf8mb4) END
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
JOIN {outbox_events} FORCE INDEX (PRIMARY) ON {outbox_events}.id = listed.id
WHERE status IN ('PENDING', 'PROCESSING') AND available_at <= :now
FOR UPDATE SKIP LOCKED
