UPDATE bongsu_people SET last_seq = last_seq + 1, unread = unread + 1, version = version + 1
WHERE person_id IN (SELECT person FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed)
