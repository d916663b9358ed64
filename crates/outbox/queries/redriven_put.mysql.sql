INSERT IGNORE INTO bongsu_outbox_redriven (id)
SELECT id FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed
