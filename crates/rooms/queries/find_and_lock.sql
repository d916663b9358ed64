-- Locks the room, so that no other transaction changes the room or its members until this transaction ends.
SELECT id FROM bongsu_rooms WHERE room = :room FOR UPDATE
