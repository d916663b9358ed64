UPDATE {outbox_events} SET status = 'FAILED'
WHERE id IN (:ids[number])
    AND status = 'PENDING'
