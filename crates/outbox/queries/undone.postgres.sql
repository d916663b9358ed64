-- Which of these rows are not done yet, and when they may be.
SELECT id, available_at
FROM {outbox_events}
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json)) AND status IN ('PENDING', 'PROCESSING')
