-- Follow-up records of which no entries can be made, until an operator has them tried again or drops them.

CREATE TABLE IF NOT EXISTS bongsu_inbox_dead_letters (
    id         BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    subject    VARCHAR(200)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    type       VARCHAR(200)  CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    -- In base64, because it may be any bytes.
    record     LONGTEXT      CHARACTER SET ascii   COLLATE ascii_bin   NOT NULL,
    attempts   BIGINT NOT NULL,
    reason     VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at BIGINT NOT NULL
) ENGINE = InnoDB;
