-- STRAIGHT_JOIN and FORCE INDEX look up one row per listed person, ordered by person id like every other transaction:
-- an index scan would also wait for locks on rows that are not listed.
SELECT STRAIGHT_JOIN person_id, last_seq, unread, version
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
ORDER BY person_id
FOR UPDATE
