-- A record of more than 96 KiB (128 KiB in base64) is returned as NULL.
SELECT id, subject, type, CASE WHEN OCTET_LENGTH(record) <= 131072 THEN record END, attempts, reason, created_at
FROM bongsu_inbox_dead_letters WHERE id > :after ORDER BY id LIMIT :limit
