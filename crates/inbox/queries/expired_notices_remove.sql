DELETE FROM bongsu_notices WHERE id IN (:ids[number])
