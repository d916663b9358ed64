DELETE notice FROM bongsu_notices notice
JOIN JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed ON notice.id = listed.id
