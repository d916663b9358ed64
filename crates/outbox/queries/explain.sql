-- One row with its status, and with the reason if it was given up and the hub recorded one.
SELECT COALESCE(position, 0), {outbox_events}.id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END,
       CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END, created_at,
       status, attempts, failures.reason, CASE WHEN OCTET_LENGTH(CAST(traceparent AS TEXT)) <= 64 THEN CAST(traceparent AS TEXT) END
FROM {outbox_events}
LEFT JOIN bongsu_outbox_failures failures ON failures.id = {outbox_events}.id
WHERE {outbox_events}.id = :id
