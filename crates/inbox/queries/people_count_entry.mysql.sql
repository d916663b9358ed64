UPDATE JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
STRAIGHT_JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
SET last_seq = last_seq + 1, unread = unread + 1, version = version + 1
