-- Counts at most 1,000,000 rows, which bounds the cost.
SELECT COUNT(*) FROM (SELECT id FROM bongsu_inbox_dead_letters LIMIT 1000000) AS counted
