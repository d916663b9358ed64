SELECT STRAIGHT_JOIN person_id, body
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_inbox_settings FORCE INDEX (PRIMARY) ON person_id = listed.person
