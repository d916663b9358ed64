SELECT COUNT(*) FROM outbox_events WHERE target_event_id = '-'
