SELECT STRAIGHT_JOIN id
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (listed_id BIGINT PATH '$')) AS listed
JOIN bongsu_notices FORCE INDEX (PRIMARY) ON id = listed.listed_id
ORDER BY id
FOR UPDATE SKIP LOCKED
