-- Puts a dead letter back, outside the order of its key.
INSERT INTO bongsu_queue_messages (queue, message_id, topic, message_key, headers, payload, is_base64, published_at, is_ordered, attempts)
SELECT queue, message_id, topic, message_key, headers, payload, is_base64, published_at, 0, 0 FROM bongsu_queue_dead_letters WHERE queue = :queue AND id = :id
