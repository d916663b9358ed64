UPDATE bongsu_work
SET claimed_by = :worker, claimed_until = :until, attempts = attempts + 1
WHERE id IN (SELECT listed.id FROM JSON_TABLE(:ids, '$[*]' COLUMNS (id BIGINT PATH '$')) AS listed)
