SELECT id FROM bongsu_rooms WHERE room = :room
