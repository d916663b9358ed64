-- The listed rows that are not finished and not redriven, and when each becomes available.
SELECT STRAIGHT_JOIN {outbox_events}.id, available_at
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
JOIN {outbox_events} FORCE INDEX (PRIMARY) ON {outbox_events}.id = listed.id
WHERE status IN ('PENDING', 'PROCESSING')
    AND NOT EXISTS (SELECT 1 FROM bongsu_outbox_redriven redriven WHERE redriven.id = {outbox_events}.id)
