-- Tokens of a person that were issued before a time are worth nothing. Kept until no such token can be valid any more.

CREATE TABLE bongsu_revocations (
    user_id       TEXT    NOT NULL PRIMARY KEY,
    issued_before INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE INDEX bongsu_revocations_by_expiry ON bongsu_revocations (expires_at);
