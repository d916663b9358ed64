-- Adds messages, in the order of the list.
INSERT INTO bongsu_queue_messages
    (queue, message_id, topic, message_key, is_ordered, headers, payload, is_base64, published_at, attempts)
SELECT message.value ->> 0, message.value ->> 1, message.value ->> 2, message.value ->> 3,
    CAST(message.value ->> 4 AS BIGINT), message.value ->> 5, message.value ->> 6,
    CAST(message.value ->> 7 AS BIGINT), CAST(message.value ->> 8 AS BIGINT), 0
FROM (:messages[row]) AS message
