SELECT STRAIGHT_JOIN person_id
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_inbox FORCE INDEX (bongsu_inbox_once) ON notice_id = :notice AND person_id = listed.person
