-- Nobody else changes the room or its members until this is done.
SELECT id FROM bongsu_rooms WHERE room = :room FOR UPDATE
