INSERT INTO bongsu_inbox (person_id, seq, notice_id, created_at)
SELECT person_id, last_seq + 1, :notice, :now FROM bongsu_people
WHERE person_id IN (SELECT person FROM JSON_TABLE(:people, '$[*]' COLUMNS (person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$')) AS listed)
