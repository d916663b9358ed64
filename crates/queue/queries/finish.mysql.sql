DELETE bongsu_queue_messages
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN bongsu_queue_messages FORCE INDEX (PRIMARY) ON bongsu_queue_messages.id = listed.id
