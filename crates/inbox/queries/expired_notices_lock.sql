SELECT id FROM bongsu_notices WHERE id IN (:ids[number])
ORDER BY id FOR UPDATE SKIP LOCKED
