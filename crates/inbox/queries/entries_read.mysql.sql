UPDATE JSON_TABLE(:seqs, '$[*]' COLUMNS (number BIGINT PATH '$')) AS listed
STRAIGHT_JOIN bongsu_inbox FORCE INDEX (PRIMARY) ON person_id = :person AND seq = listed.number
SET read_at = :now
WHERE read_at IS NULL AND deleted_at IS NULL
