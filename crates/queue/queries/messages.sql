SELECT bongsu_queue_messages.id, message_id, topic, message_key, is_ordered, headers, payload, is_base64, published_at, attempts
FROM bongsu_queue_messages
WHERE id IN (:ids[number])
