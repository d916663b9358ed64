INSERT INTO bongsu_outbox_failures (id, reason)
SELECT id, reason
FROM JSON_TABLE(:failures, '$[*]' COLUMNS (
    id BIGINT PATH '$[0]', reason VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$[1]')) AS failures
WHERE EXISTS (SELECT 1 FROM {outbox_events} known WHERE known.id = failures.id AND known.status = 'FAILED')
ON DUPLICATE KEY UPDATE reason = VALUES(reason)
