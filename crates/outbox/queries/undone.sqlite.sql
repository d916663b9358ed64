-- Which of these rows are not done yet, and when they may be.
SELECT id, available_at
FROM {outbox_events}
WHERE id IN (SELECT value FROM json_each(:ids)) AND status IN ('PENDING', 'PROCESSING')
