SELECT id, event_id, type, ref_id, actor_id, payload FROM bongsu_notices
WHERE event_id = :event AND of_room = :of_room
