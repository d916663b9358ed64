-- Locks rows without a position, and skips rows that another transaction has locked. Returns the columns that the fault
-- check needs.
SELECT id, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END, CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END
FROM {outbox_events}
WHERE id IN (:ids[number]) AND position IS NULL
FOR UPDATE SKIP LOCKED
