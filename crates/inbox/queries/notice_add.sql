INSERT INTO bongsu_notices (event_id, type, ref_id, actor_id, payload, created_at)
VALUES (:event, :type, :ref, :actor, :payload, :now)
ON CONFLICT DO NOTHING
