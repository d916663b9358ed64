-- What may be done now. In order: only the first of a target that is not done yet.
SELECT id
FROM outbox_events
WHERE outbox_events.status IN ('PENDING', 'PROCESSING') AND outbox_events.available_at <= :now
    AND outbox_events.position IS NOT NULL AND JSON_CONTAINS(:kinds, JSON_QUOTE(outbox_events.event_type))
    AND NOT EXISTS (
        SELECT 1 FROM outbox_events earlier
        WHERE earlier.target_event_id = outbox_events.target_event_id AND earlier.position < outbox_events.position
            AND earlier.status IN ('PENDING', 'PROCESSING') AND JSON_CONTAINS(:kinds, JSON_QUOTE(earlier.event_type)))
ORDER BY outbox_events.position
LIMIT :most
