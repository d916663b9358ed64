-- Tokens of a person that were issued before a time are worth nothing. Kept until no such token can be valid any more.

CREATE TABLE bongsu_revocations (
    user_id       TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    issued_before BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
);

CREATE INDEX bongsu_revocations_by_expiry ON bongsu_revocations (expires_at);
