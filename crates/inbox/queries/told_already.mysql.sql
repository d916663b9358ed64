SELECT person_id FROM bongsu_inbox
WHERE notice_id = :notice AND person_id IN (SELECT person FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed)
