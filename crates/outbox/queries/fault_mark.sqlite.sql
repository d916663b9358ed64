UPDATE {outbox_events} SET status = 'FAILED'
WHERE id IN (SELECT value FROM json_each(:ids))
    AND status = 'PENDING'
