-- Rows that are old enough to go, but for a worker that has not come.
SELECT COUNT(*) FROM (
    SELECT id FROM {outbox_events} WHERE position <= :up_to AND status IN ('PENDING', 'PROCESSING') LIMIT 1000) AS waiting
