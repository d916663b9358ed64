DELETE FROM bongsu_queue_sequences
WHERE (queue, message_key) IN (
    SELECT queue, message_key FROM bongsu_queue_sequences WHERE updated_at < :before ORDER BY updated_at LIMIT :limit)
