-- Rows that no worker has to handle any more: DONE rows and, if the argument every is 0, rows whose type is not among
-- the argument kinds.
SELECT id, CASE WHEN OCTET_LENGTH(target_event_id) > 800 THEN '(too long)' ELSE COALESCE(target_event_id, '-') END, position
FROM {outbox_events} FORCE INDEX ({outbox_events_order})
WHERE position > :after AND position <= :up_to
    AND (status = 'DONE' OR (:every = 0 AND NOT JSON_CONTAINS(:kinds, JSON_QUOTE(event_type))))
ORDER BY position
LIMIT :most
