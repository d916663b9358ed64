SELECT room.id, member.user_id
FROM bongsu_rooms room
LEFT JOIN bongsu_members member ON member.room_id = room.id AND member.user_id = :user
WHERE room.room = :room
