SELECT person_id, last_seq, unread, version FROM bongsu_people
WHERE person_id IN (SELECT person FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed)
ORDER BY person_id
