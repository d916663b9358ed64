INSERT INTO bongsu_members (room_id, user_id) VALUES (:id, :user) ON CONFLICT DO NOTHING
