-- Adds messages, in the order of the list.
INSERT INTO bongsu_queue_messages
    (queue, message_id, topic, message_key, is_ordered, headers, payload, is_base64, published_at, attempts)
SELECT queue, message_id, topic, message_key, is_ordered, headers, payload, is_base64, published_at, 0
FROM JSON_TABLE(:messages, '$[*]' COLUMNS (
    queue VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', message_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]', topic VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]',
    message_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[3]', is_ordered BIGINT PATH '$[4]',
    headers LONGTEXT CHARACTER SET utf8mb4 PATH '$[5]', payload LONGTEXT CHARACTER SET utf8mb4 PATH '$[6]',
    is_base64 BIGINT PATH '$[7]', published_at BIGINT PATH '$[8]')) AS message
