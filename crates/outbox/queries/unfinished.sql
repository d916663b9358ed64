-- Those of the rows that are not finished, and when each becomes available.
SELECT id, available_at
FROM {outbox_events}
WHERE id IN (:ids[number]) AND status IN ('PENDING', 'PROCESSING')
