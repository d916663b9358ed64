-- More than these are not counted: somebody should look at them.
SELECT COUNT(*) FROM (SELECT id FROM {outbox_events} WHERE target_event_id = '-' LIMIT 1000) AS untargeted
