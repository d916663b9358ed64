-- Makes messages wait: until a time, or behind another message of their key.
UPDATE JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN bongsu_queue_messages FORCE INDEX (PRIMARY) ON bongsu_queue_messages.id = listed.id
SET ready_at = :until, waiting_key = CASE WHEN is_ordered = 1 THEN message_key END
