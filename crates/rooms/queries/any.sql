SELECT 1 FROM bongsu_rooms LIMIT 1
