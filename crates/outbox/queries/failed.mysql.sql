-- A page of the rows that were given up, and why, as far as it was written down.
SELECT COALESCE(position, 0), outbox_events.id, SUBSTR(COALESCE(target_event_id, '-'), 1, 200), SUBSTR(event_type, 1, 200),
       CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(payload) <= 65536 THEN CONVERT(payload USING utf8mb4) END, created_at, attempts, COALESCE(reason, '')
FROM outbox_events
LEFT JOIN bongsu_outbox_failures failures ON failures.id = outbox_events.id
WHERE outbox_events.status = 'FAILED' AND outbox_events.id > :after AND outbox_events.id <= :up_to
ORDER BY outbox_events.id
LIMIT :most
