-- Messages that were to wait until now.
SELECT id
FROM bongsu_queue_messages
WHERE queue = :queue AND ready_at <= :now
ORDER BY ready_at, id
LIMIT :limit
