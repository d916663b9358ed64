DELETE entry FROM bongsu_inbox entry
JOIN JSON_TABLE(:entries, '$[*]' COLUMNS (
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', seq BIGINT PATH '$[1]')) AS listed
    ON entry.person_id = listed.person AND entry.seq = listed.seq
