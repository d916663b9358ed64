-- From the list to the rows, one by one and in the list's order, which is everybody's: a scan would also wait for rows
-- that are not in it.
SELECT STRAIGHT_JOIN person_id, last_seq, unread, version
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
ORDER BY person_id
FOR UPDATE
