SELECT STRAIGHT_JOIN bongsu_queue_messages.id, message_id, topic, message_key, is_ordered, headers, payload, is_base64, published_at, attempts
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
JOIN bongsu_queue_messages FORCE INDEX (PRIMARY) ON bongsu_queue_messages.id = listed.id
