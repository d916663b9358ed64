-- What another worker is just claiming is passed over.
SELECT id, work_key, body, attempts
FROM bongsu_work
WHERE kind = :kind AND done_at IS NULL AND not_before <= :now AND claimed_until <= :now
ORDER BY id
LIMIT :most
FOR UPDATE SKIP LOCKED
