-- Counts at most 1,000,000 rows, which bounds the cost.
SELECT COUNT(*) FROM (SELECT id FROM {outbox_events} WHERE status = 'FAILED' LIMIT 1000000) AS failed
