DELETE bongsu_outbox_redriven
FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
STRAIGHT_JOIN bongsu_outbox_redriven FORCE INDEX (PRIMARY) ON bongsu_outbox_redriven.id = listed.id
