SELECT id FROM bongsu_queue_messages
WHERE queue = :queue AND waiting_key = :key
ORDER BY id
LIMIT :limit
