-- Skips rows that another transaction has locked: retention handles those persons in a later batch. It does
-- not wait for the lock, so that no other transaction queues behind it.
SELECT STRAIGHT_JOIN person_id
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
ORDER BY person_id
FOR UPDATE SKIP LOCKED
