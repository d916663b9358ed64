-- Those whom nobody else has: who may as well come later waits for nobody, and has nobody wait.
SELECT STRAIGHT_JOIN person_id
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
ORDER BY person_id
FOR UPDATE SKIP LOCKED
