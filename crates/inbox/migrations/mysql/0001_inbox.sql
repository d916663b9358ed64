-- What people were told of, and what became of it.

-- What happened, once for all who are told of it.
CREATE TABLE IF NOT EXISTS bongsu_notices (
    id         BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    event_id   VARCHAR(192) CHARACTER SET ascii COLLATE ascii_bin NOT NULL UNIQUE,
    type       VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    ref_id     VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin,
    actor_id   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin,
    payload    MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at BIGINT NOT NULL,
    INDEX bongsu_notices_by_age (created_at)
) ENGINE = InnoDB;

-- Whoever changes anything of a person's holds this row first: sequence, count and version change with the entries.
CREATE TABLE IF NOT EXISTS bongsu_people (
    person_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    last_seq  BIGINT NOT NULL,
    unread    BIGINT NOT NULL,
    version   BIGINT NOT NULL
) ENGINE = InnoDB;

-- A deleted one stays until it is too old, so that what is told again is not told twice.
CREATE TABLE IF NOT EXISTS bongsu_inbox (
    person_id  VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    seq        BIGINT NOT NULL,
    notice_id  BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    read_at    BIGINT,
    deleted_at BIGINT,
    PRIMARY KEY (person_id, seq),
    UNIQUE INDEX bongsu_inbox_once (notice_id, person_id),
    INDEX bongsu_inbox_unread (person_id, read_at, created_at),
    INDEX bongsu_inbox_by_age (created_at)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS bongsu_inbox_settings (
    person_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    body      MEDIUMTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
