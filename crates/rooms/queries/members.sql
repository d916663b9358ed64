SELECT user_id FROM bongsu_members WHERE room_id = :id ORDER BY user_id
