UPDATE {outbox_events} SET status = 'PROCESSING', available_at = :until
WHERE id IN (SELECT value FROM json_each(:ids))
