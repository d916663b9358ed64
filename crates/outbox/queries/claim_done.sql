UPDATE {outbox_events} SET status = 'DONE', available_at = :now
WHERE id IN (:ids[number])
    AND status = 'PROCESSING' AND available_at = :until
