-- A worker of your own, on PostgreSQL or MariaDB: claims a row, does what there is to do, and marks the row. On MariaDB its
-- connection first says SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED: at the usual level it would lock the gaps
-- between rows as well, and have everybody wait who inserts one.

-- Claim a row: one that has its place, so that streams never wait for a worker, and that no other worker has claimed.
BEGIN;
SELECT id, target_event_id, payload
FROM outbox_events
WHERE status = 'PENDING' AND position IS NOT NULL AND event_type = 'task.added.v1'
ORDER BY position
LIMIT 1
FOR UPDATE SKIP LOCKED;

-- Do the work. The row is yours until the COMMIT; if the worker dies before it, the row is free again. Then, with its id:
UPDATE outbox_events SET status = 'DONE' WHERE id = 1;
COMMIT;
