-- Requires that the row still has this claim: after its end another worker may have claimed the row.
UPDATE {outbox_events} SET status = :status, attempts = :attempts, available_at = :available_at
WHERE id = :id AND status = 'PROCESSING' AND available_at = :until
