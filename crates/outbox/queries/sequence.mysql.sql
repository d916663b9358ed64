UPDATE JSON_TABLE(:ids, '$[*]' COLUMNS (place FOR ORDINALITY, id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN {outbox_events} FORCE INDEX (PRIMARY) ON {outbox_events}.id = listed.id
SET {outbox_events}.position = :after + listed.place
