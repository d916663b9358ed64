-- What an operator asks. The same file runs on all three databases; times are milliseconds since 1970.

-- Rows that have no place yet, and since when the oldest of them waits. Usually none, or those of this very moment.
SELECT COUNT(*) AS waiting, MIN(created_at) AS oldest FROM outbox_events WHERE position IS NULL;

-- What waits for a worker, by type, and since when.
SELECT event_type, COUNT(*) AS waiting, MIN(created_at) AS oldest
FROM outbox_events WHERE status IN ('PENDING', 'PROCESSING') GROUP BY event_type;

-- What was given up, and why; without a reason, another program's worker gave it up.
SELECT outbox_events.id, target_event_id, event_type, attempts, reason
FROM outbox_events LEFT JOIN bongsu_outbox_failures ON bongsu_outbox_failures.id = outbox_events.id
WHERE status = 'FAILED' ORDER BY outbox_events.id LIMIT 20;

-- Rows that are about no event: whoever writes them leaves target_event_id out.
SELECT event_type, COUNT(*) AS untold FROM outbox_events WHERE target_event_id = '-' GROUP BY event_type;
