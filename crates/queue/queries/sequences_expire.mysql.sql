DELETE FROM bongsu_queue_sequences WHERE updated_at < :before ORDER BY updated_at LIMIT :limit
