-- Streams may still read it; nobody does anything about it any more.
UPDATE {outbox_events} SET status = 'DONE' WHERE id = :id AND status = 'FAILED'
