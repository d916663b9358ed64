-- Ordered by person id: every transaction that locks several person rows locks them in this order, which avoids
-- deadlocks.
INSERT INTO bongsu_people (person_id, last_seq, unread, version)
SELECT person, 0, 0, 0
FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed
ORDER BY person
ON DUPLICATE KEY UPDATE person_id = person_id
