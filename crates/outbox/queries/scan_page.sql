-- The next rows by position. The worker selects those that it handles. A redriven row is outside the order of its
-- target, so its status is REDRIVEN here.
SELECT position, id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END,
    CASE WHEN status IN ('PENDING', 'PROCESSING') AND EXISTS (SELECT 1 FROM bongsu_outbox_redriven redriven WHERE redriven.id = {outbox_events}.id) THEN 'REDRIVEN' ELSE status END, available_at
FROM {outbox_events}
WHERE position > :after AND position <= (SELECT head.position FROM bongsu_outbox_head head WHERE head.one = 1)
ORDER BY position
LIMIT :most
