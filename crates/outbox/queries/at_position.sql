SELECT id FROM {outbox_events} WHERE target_event_id = :target AND position = :position
