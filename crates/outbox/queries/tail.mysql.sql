-- As many as fit, by what comes before each of them: one is always given, however large it is. Which those are is found out
-- without their payloads, which would go through temporary tables on the disk.
SELECT STRAIGHT_JOIN outbox_events.position, outbox_events.id, target_event_id, event_type, payload, created_at
FROM (SELECT id, SUM(size) OVER (ORDER BY position) - size AS led_by
      FROM (SELECT id, position, OCTET_LENGTH(payload) AS size
            FROM outbox_events
            WHERE position > :after
            ORDER BY position
            LIMIT :most) AS found) AS measured
JOIN outbox_events FORCE INDEX (PRIMARY) ON outbox_events.id = measured.id
WHERE led_by < :bytes
ORDER BY outbox_events.position
