SELECT room FROM bongsu_rooms WHERE room IN (:rooms[text])
