-- Returns at least one row, and further rows while the payloads before them have fewer bytes in total than
-- the argument bytes. A payload of more than 64 KiB is returned as NULL.
SELECT position, id, target_event_id, event_type, payload, created_at
FROM (SELECT found.*, SUM(COALESCE(OCTET_LENGTH(payload), 0)) OVER (ORDER BY position) - COALESCE(OCTET_LENGTH(payload), 0) AS led_by
      FROM (SELECT position, id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END AS target_event_id, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END AS event_type, created_at,
                   CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END AS payload
            FROM {outbox_events}
            WHERE target_event_id = :target AND position > :after AND position <= :reached
            ORDER BY position
            LIMIT :most) AS found) AS measured
WHERE led_by < :bytes
ORDER BY position
