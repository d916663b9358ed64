-- Returns at least one row, and further rows while the payloads before them have fewer bytes in total than
-- the argument bytes. A payload of more than 64 KiB is returned as NULL. The sizes come from a subquery that
-- returns no payloads, because payloads would go through temporary tables on disk.
SELECT STRAIGHT_JOIN {outbox_events}.position, {outbox_events}.id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END,
       CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(payload) <= 65536 THEN CONVERT(payload USING utf8mb4) END,
       created_at
FROM (SELECT id, SUM(size) OVER (ORDER BY position) - size AS led_by
      FROM (SELECT id, position, CASE WHEN OCTET_LENGTH(payload) <= 65536 THEN OCTET_LENGTH(payload) ELSE 0 END AS size
            FROM {outbox_events} FORCE INDEX ({outbox_events_order})
            WHERE position > :after
                AND position <= (SELECT head.position FROM bongsu_outbox_head head WHERE head.one = 1)
            ORDER BY position
            LIMIT :most) AS found) AS measured
JOIN {outbox_events} FORCE INDEX (PRIMARY) ON {outbox_events}.id = measured.id
WHERE led_by < :bytes
ORDER BY {outbox_events}.position
