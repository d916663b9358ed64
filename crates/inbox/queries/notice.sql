-- When a service has used the event id of a room event, the notification of the room event is returned.
SELECT id, event_id, type, ref_id, actor_id, payload, created_at FROM bongsu_notices WHERE event_id = :event
ORDER BY of_room DESC LIMIT 1
