-- Rooms that were registered, and who may be in them.

CREATE TABLE bongsu_rooms (
    id   BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    room TEXT COLLATE "C" NOT NULL UNIQUE
);

CREATE TABLE bongsu_members (
    room_id BIGINT NOT NULL REFERENCES bongsu_rooms (id) ON DELETE CASCADE,
    user_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (room_id, user_id)
);
