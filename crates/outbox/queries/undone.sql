-- Which of these rows are not done yet, and when they may be.
SELECT id, available_at
FROM {outbox_events}
WHERE id IN (:ids[number]) AND status IN ('PENDING', 'PROCESSING')
