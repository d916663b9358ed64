-- Counts at most 1,000 rows, which bounds the cost.
SELECT COUNT(*) FROM (SELECT id FROM {outbox_events} WHERE target_event_id = '-' LIMIT 1000) AS untargeted
