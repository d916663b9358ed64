-- As many versions as marks may have waited for what goes.
UPDATE bongsu_people
JOIN JSON_TABLE(:counts, '$[*]' COLUMNS (
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', gone BIGINT PATH '$[1]')) AS listed
    ON person_id = listed.person
SET unread = unread - listed.gone, version = version + 1 + listed.gone
