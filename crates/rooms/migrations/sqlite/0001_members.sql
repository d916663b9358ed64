-- Rooms that were registered, and who may be in them.

CREATE TABLE bongsu_rooms (
    id   INTEGER PRIMARY KEY,
    room TEXT    NOT NULL UNIQUE
) STRICT;

CREATE TABLE bongsu_members (
    room_id INTEGER NOT NULL REFERENCES bongsu_rooms (id) ON DELETE CASCADE,
    user_id TEXT    NOT NULL,
    PRIMARY KEY (room_id, user_id)
) WITHOUT ROWID, STRICT;
