-- As many versions as marks may have waited for what goes.
UPDATE JSON_TABLE(:counts, '$[*]' COLUMNS (
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', gone BIGINT PATH '$[1]')) AS listed
STRAIGHT_JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
SET unread = unread - listed.gone, version = version + 1 + listed.gone
