INSERT INTO bongsu_queue_sequences (queue, message_key, sequence, updated_at)
SELECT :queue, item.message_key, item.sequence, :now
FROM JSON_TABLE(:sequences, '$[*]' COLUMNS (
    message_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', sequence BIGINT PATH '$[1]')) AS item
ON DUPLICATE KEY UPDATE sequence = VALUES(sequence), updated_at = VALUES(updated_at)
