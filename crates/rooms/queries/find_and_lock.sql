-- Locks the room, so that no other transaction changes it or its members until this one ends.
SELECT id FROM bongsu_rooms WHERE room = :room FOR UPDATE
