-- The version grows by one and by the number of removed unread entries: a buffered mark on each of them may already
-- have been counted as one version.
UPDATE JSON_TABLE(:counts, '$[*]' COLUMNS (
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]', removed BIGINT PATH '$[1]')) AS listed
STRAIGHT_JOIN bongsu_people FORCE INDEX (PRIMARY) ON person_id = listed.person
SET unread = unread - listed.removed, version = version + 1 + listed.removed
