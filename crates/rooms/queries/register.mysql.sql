INSERT IGNORE INTO bongsu_rooms (room) VALUES (:room)
