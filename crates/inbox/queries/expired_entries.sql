-- Starts at the creation time where the previous batch stopped: a scan from the beginning would read over
-- every row that earlier batches deleted, until the server has purged these rows.
SELECT person_id, seq, read_at, deleted_at, created_at FROM bongsu_inbox
WHERE created_at >= :from AND created_at < :before ORDER BY created_at LIMIT :limit
