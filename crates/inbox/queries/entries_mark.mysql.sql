-- The earlier time stays: an entry may have been marked again while its buffered mark could not be read.
UPDATE JSON_TABLE(:marks, '$[*]' COLUMNS (marked BIGINT PATH '$[0]', at BIGINT PATH '$[1]')) AS listed
STRAIGHT_JOIN bongsu_inbox FORCE INDEX (PRIMARY) ON person_id = :person AND seq = listed.marked
SET read_at = listed.at
WHERE read_at IS NULL OR read_at > listed.at
