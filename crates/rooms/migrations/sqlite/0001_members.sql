-- Rooms that were registered, and who may be in them.

CREATE TABLE rooms (
    id   INTEGER PRIMARY KEY,
    room TEXT    NOT NULL UNIQUE
) STRICT;

CREATE TABLE members (
    room_id INTEGER NOT NULL REFERENCES rooms (id) ON DELETE CASCADE,
    user_id TEXT    NOT NULL,
    PRIMARY KEY (room_id, user_id)
) WITHOUT ROWID, STRICT;
