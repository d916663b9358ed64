SELECT room FROM bongsu_rooms WHERE room IN (SELECT value FROM json_each(:rooms))
