-- Messages that can be handled now, without those that the consumer holds already.
SELECT id, message_key, is_ordered, OCTET_LENGTH(headers) + OCTET_LENGTH(payload)
FROM bongsu_queue_messages
WHERE queue = :queue AND ready_at IS NULL AND id NOT IN (:held[number])
ORDER BY id
LIMIT :limit
