INSERT INTO bongsu_queue_dead_letters (queue, message_id, topic, message_key, headers, payload, is_base64, published_at, attempts, reason, failed_at)
SELECT queue, message_id, topic, message_key, headers, payload, is_base64, published_at, :attempts, :reason, :now FROM bongsu_queue_messages WHERE id = :id
