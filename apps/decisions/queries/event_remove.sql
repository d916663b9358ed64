DELETE FROM decision_events WHERE id = :event
