INSERT IGNORE INTO bongsu_members (room_id, user_id) VALUES (:id, :user)
