-- As many as fit, by what comes before each of them: one is always given, however large it is.
SELECT position, id, target_event_id, event_type, payload, created_at
FROM (SELECT found.*, SUM(size) OVER (ORDER BY position) - size AS led_by
      FROM (SELECT position, id, target_event_id, event_type, payload AS payload, created_at,
                   OCTET_LENGTH(payload) AS size
            FROM outbox_events
            WHERE target_event_id = :target AND position > :after
            ORDER BY position
            LIMIT :most) AS found) AS measured
WHERE led_by < :bytes
ORDER BY position
