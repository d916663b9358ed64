-- Locks rows without a position, and skips rows that another transaction has locked. Each row is locked by its primary
-- key, so that no gap is locked and no insert waits. Returns the columns that the fault check needs.
SELECT STRAIGHT_JOIN {outbox_events}.id, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END, CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(payload) <= 65536 THEN CONVERT(payload USING utf8mb4) END
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
JOIN {outbox_events} FORCE INDEX (PRIMARY) ON {outbox_events}.id = listed.id
WHERE {outbox_events}.position IS NULL
FOR UPDATE SKIP LOCKED
