SELECT id, title, auto_approve_percent, creator_id, created_at FROM decision_events WHERE id = :event
