SELECT MAX(id) FROM outbox_events
