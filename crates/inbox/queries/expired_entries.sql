-- Starts at the creation time where the previous step stopped: a scan from the beginning would step over every row that
-- earlier steps deleted, until the server has purged them.
SELECT person_id, seq, read_at, deleted_at, created_at FROM bongsu_inbox
WHERE created_at >= :from AND created_at < :before ORDER BY created_at LIMIT :limit
