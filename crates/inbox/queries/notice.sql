SELECT id, event_id, type, ref_id, actor_id, payload, created_at FROM bongsu_notices WHERE event_id = :event
