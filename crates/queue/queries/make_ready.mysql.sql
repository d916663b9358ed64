UPDATE JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN bongsu_queue_messages FORCE INDEX (PRIMARY) ON bongsu_queue_messages.id = listed.id
SET ready_at = NULL, waiting_key = NULL
