-- Work that is to be done: claimed by one worker at a time, until it is done.

CREATE TABLE IF NOT EXISTS bongsu_work (
    id            BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    kind          VARCHAR(64)   CHARACTER SET ascii   COLLATE ascii_bin   NOT NULL,
    work_key      VARCHAR(192)  CHARACTER SET ascii   COLLATE ascii_bin   NOT NULL,
    body          LONGTEXT      CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    not_before    BIGINT NOT NULL,
    attempts      BIGINT NOT NULL,
    claimed_by    VARCHAR(64)   CHARACTER SET ascii   COLLATE ascii_bin,
    claimed_until BIGINT NOT NULL,
    reason        VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
    created_at    BIGINT NOT NULL,
    done_at       BIGINT,
    INDEX bongsu_work_order (kind, done_at, id)
) ENGINE = InnoDB;
