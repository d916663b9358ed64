UPDATE {outbox_events} SET status = 'PENDING', attempts = 0, available_at = :now
WHERE id IN (:ids[number])
    AND status = 'FAILED'
