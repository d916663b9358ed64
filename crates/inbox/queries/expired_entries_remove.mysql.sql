DELETE entry
FROM JSON_TABLE(:entries, '$[*]' COLUMNS (
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', number BIGINT PATH '$[1]')) AS listed
STRAIGHT_JOIN bongsu_inbox entry FORCE INDEX (PRIMARY) ON entry.person_id = listed.person AND entry.seq = listed.number
