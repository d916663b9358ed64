-- A page of the rows that were given up, with the reason if the hub recorded one.
SELECT COALESCE(position, 0), {outbox_events}.id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END, CASE WHEN OCTET_LENGTH(event_type) > 800 THEN '(too long)' ELSE event_type END,
       CASE WHEN payload IS NULL THEN 'null' WHEN OCTET_LENGTH(CAST(payload AS TEXT)) <= 65536 THEN CAST(payload AS TEXT) END, created_at, attempts, COALESCE(failures.reason, '')
FROM {outbox_events}
LEFT JOIN bongsu_outbox_failures failures ON failures.id = {outbox_events}.id
WHERE {outbox_events}.status = 'FAILED' AND {outbox_events}.id > :after AND {outbox_events}.id <= :up_to
ORDER BY {outbox_events}.id
LIMIT :most
