SELECT id FROM bongsu_rooms ORDER BY id LIMIT 1
