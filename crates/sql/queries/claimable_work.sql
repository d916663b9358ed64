-- Skips items that another worker is claiming at the same moment.
SELECT id, work_key, body, attempts
FROM bongsu_work
WHERE kind = :kind AND done_at IS NULL AND not_before <= :now AND claimed_until <= :now
ORDER BY id
LIMIT :limit
FOR UPDATE SKIP LOCKED
