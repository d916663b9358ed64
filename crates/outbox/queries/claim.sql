UPDATE {outbox_events} SET status = 'PROCESSING', available_at = :until
WHERE id IN (:ids[number])
