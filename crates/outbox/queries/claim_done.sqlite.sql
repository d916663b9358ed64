UPDATE {outbox_events} SET status = 'DONE', available_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
    AND status = 'PROCESSING' AND available_at = :until
