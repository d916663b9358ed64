DELETE {outbox_events}
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN {outbox_events} FORCE INDEX (PRIMARY) ON {outbox_events}.id = listed.id
