-- Only by the one that has it now: a claim that has ended may be another worker's.
UPDATE {outbox_events} SET status = :status, attempts = :attempts, available_at = :available_at
WHERE id = :id AND status = 'PROCESSING' AND available_at = :until
