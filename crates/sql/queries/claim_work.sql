UPDATE bongsu_work
SET claimed_by = :worker, claimed_until = :until, attempts = attempts + 1
WHERE id IN (:ids[number])
