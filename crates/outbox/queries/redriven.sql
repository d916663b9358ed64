-- Redriven rows that are available. They are handled outside the order of their targets.
SELECT {outbox_events}.id, CASE WHEN OCTET_LENGTH({outbox_events}.event_type) > 800 THEN '(too long)' ELSE {outbox_events}.event_type END
FROM bongsu_outbox_redriven redriven
JOIN {outbox_events} ON {outbox_events}.id = redriven.id
WHERE {outbox_events}.status IN ('PENDING', 'PROCESSING') AND {outbox_events}.available_at <= :now
ORDER BY {outbox_events}.id
LIMIT :most
