-- What was done once and is not done again. Keys are bytes: text that ends in spaces would equal text without them.

CREATE TABLE IF NOT EXISTS bongsu_once (
    scope    VARCHAR(64)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    once_key VARBINARY(192) NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (scope, once_key),
    INDEX bongsu_once_age (scope, at)
) ENGINE = InnoDB;
