-- That of a room's event, where a service has used the same id.
SELECT id, event_id, type, ref_id, actor_id, payload, created_at FROM bongsu_notices WHERE event_id = :event
ORDER BY of_room DESC LIMIT 1
