UPDATE {outbox_events} SET status = 'PENDING', attempts = 0, available_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
    AND status = 'FAILED'
