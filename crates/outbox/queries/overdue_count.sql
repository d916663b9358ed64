-- Rows that are old enough to be removed and still wait for a worker. Counts at most 1,000, which bounds the cost.
SELECT COUNT(*) FROM (
    SELECT id FROM {outbox_events} WHERE position <= :up_to AND status IN ('PENDING', 'PROCESSING') LIMIT 1000) AS waiting
