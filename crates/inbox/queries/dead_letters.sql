-- A record of more than 96 KiB, in base64 a third more, is not shown.
SELECT id, subject, type, CASE WHEN OCTET_LENGTH(record) <= 131072 THEN record END, attempts, reason, created_at
FROM bongsu_inbox_dead_letters WHERE id > :after ORDER BY id LIMIT :limit
