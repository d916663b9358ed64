-- Tokens of a person that were issued before a time are worth nothing. Kept until no such token can be valid any more.

CREATE TABLE revocations (
    user_id       TEXT    NOT NULL PRIMARY KEY,
    issued_before INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

CREATE INDEX revocations_by_expiry ON revocations (expires_at);
