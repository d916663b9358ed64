-- The row stays for streams until retention removes it.
UPDATE {outbox_events} SET status = 'DONE' WHERE id = :id AND status = 'FAILED'
