-- The listed rows that are not finished and not redriven, and when each becomes available.
SELECT id, available_at
FROM {outbox_events}
WHERE id IN (:ids[number]) AND status IN ('PENDING', 'PROCESSING')
    AND NOT EXISTS (SELECT 1 FROM bongsu_outbox_redriven redriven WHERE redriven.id = {outbox_events}.id)
