SELECT person_id, seq, read_at, deleted_at FROM bongsu_inbox WHERE created_at < :before ORDER BY created_at LIMIT :limit
