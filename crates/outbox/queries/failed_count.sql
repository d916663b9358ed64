-- More than these are not counted.
SELECT COUNT(*) FROM (SELECT id FROM {outbox_events} WHERE status = 'FAILED' LIMIT 1000000) AS failed
