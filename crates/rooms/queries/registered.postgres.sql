SELECT room FROM bongsu_rooms WHERE room IN (SELECT json_array_elements_text((:rooms)::json))
