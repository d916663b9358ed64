-- Those that nobody else holds, each by its key: no gap is locked, and nobody who writes has to wait.
SELECT STRAIGHT_JOIN outbox_events.id
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
JOIN outbox_events FORCE INDEX (PRIMARY) ON outbox_events.id = listed.id
WHERE outbox_events.position IS NULL
FOR UPDATE SKIP LOCKED
