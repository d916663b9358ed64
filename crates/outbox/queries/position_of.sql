SELECT position FROM outbox_events WHERE id = :id AND target_event_id = :target AND position IS NOT NULL
