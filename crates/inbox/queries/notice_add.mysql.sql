-- Not INSERT IGNORE, which would also truncate values that are too long.
INSERT INTO bongsu_notices (event_id, type, ref_id, actor_id, payload, created_at)
VALUES (:event, :type, :ref, :actor, :payload, :now)
ON DUPLICATE KEY UPDATE event_id = event_id
