SELECT id, message_key, topic, payload, is_base64, attempts, reason, published_at
FROM bongsu_queue_dead_letters
WHERE queue = :queue AND id > :after
ORDER BY id
LIMIT :limit
