INSERT INTO bongsu_rooms (room) VALUES (:room) ON CONFLICT DO NOTHING
