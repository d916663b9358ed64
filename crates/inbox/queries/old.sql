-- From where the last step left off: what it removed is still passed over one by one until the server has cleaned up.
SELECT person_id, seq, read_at, deleted_at, created_at FROM bongsu_inbox
WHERE created_at >= :from AND created_at < :before ORDER BY created_at LIMIT :limit
