-- Marks the row as done, so that streams can read it until retention removes it.
UPDATE {outbox_events} SET status = 'DONE' WHERE id = :id AND status = 'FAILED'
