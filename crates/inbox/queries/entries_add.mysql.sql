INSERT INTO bongsu_inbox (person_id, seq, notice_id, created_at)
SELECT STRAIGHT_JOIN person_id, last_seq + 1, :notice, :now
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
