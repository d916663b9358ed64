SELECT COUNT(*) FROM outbox_events WHERE status = 'FAILED'
