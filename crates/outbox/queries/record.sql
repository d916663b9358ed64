INSERT INTO {outbox_events} (event_type, payload, target_event_id, traceparent)
VALUES (:event_type, :payload, :target, :traceparent)
