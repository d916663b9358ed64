DELETE notice
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (listed_id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN bongsu_notices notice FORCE INDEX (PRIMARY) ON notice.id = listed.listed_id
