-- What was failed and is to be tried again, outside the order of its target.
SELECT outbox_events.id, SUBSTR(outbox_events.event_type, 1, 200)
FROM bongsu_outbox_redriven redriven
JOIN outbox_events ON outbox_events.id = redriven.id
WHERE outbox_events.status IN ('PENDING', 'PROCESSING') AND outbox_events.available_at <= :now
ORDER BY outbox_events.id
LIMIT :most
