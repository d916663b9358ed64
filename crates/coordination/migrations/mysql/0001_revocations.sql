-- Tokens of a person that were issued before a time are worth nothing. Kept until no such token can be valid any more.

CREATE TABLE IF NOT EXISTS bongsu_revocations (
    user_id       VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    issued_before BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL,
    INDEX bongsu_revocations_by_expiry (expires_at)
) ENGINE = InnoDB;
