-- More than these are not counted.
SELECT COUNT(*) FROM (SELECT id FROM bongsu_inbox_dead_letters LIMIT 1000000) AS counted
