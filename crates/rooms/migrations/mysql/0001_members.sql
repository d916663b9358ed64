-- Rooms that were registered, and who may be in them.

CREATE TABLE IF NOT EXISTS bongsu_rooms (
    id   BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    room VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL UNIQUE
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS bongsu_members (
    room_id BIGINT NOT NULL,
    user_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    PRIMARY KEY (room_id, user_id),
    FOREIGN KEY (room_id) REFERENCES bongsu_rooms (id) ON DELETE CASCADE
) ENGINE = InnoDB;
