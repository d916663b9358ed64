-- The number of messages, counted up to a limit, and when the oldest of those that can be handled was published.
SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM bongsu_queue_messages WHERE queue = :queue LIMIT :limit) AS counted),
    (SELECT published_at FROM bongsu_queue_messages
     WHERE queue = :queue AND ready_at IS NULL ORDER BY id LIMIT 1)
