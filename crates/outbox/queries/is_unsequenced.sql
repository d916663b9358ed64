SELECT id FROM outbox_events WHERE position IS NULL LIMIT 1
