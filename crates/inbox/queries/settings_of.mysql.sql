SELECT person_id, body FROM bongsu_inbox_settings
WHERE person_id IN (SELECT person FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed)
