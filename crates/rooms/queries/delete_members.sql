DELETE FROM bongsu_members WHERE room_id = :id
