DELETE FROM bongsu_rooms WHERE id = :id
