SELECT id FROM bongsu_notices
WHERE id IN (SELECT id FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed)
ORDER BY id FOR UPDATE
