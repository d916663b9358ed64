DELETE bongsu_outbox_failures
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN bongsu_outbox_failures FORCE INDEX (PRIMARY) ON bongsu_outbox_failures.id = listed.id
