-- What was done once and is not done again.

CREATE TABLE bongsu_once (
    scope    TEXT    NOT NULL,
    once_key TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    PRIMARY KEY (scope, once_key)
) WITHOUT ROWID, STRICT;

CREATE INDEX bongsu_once_age ON bongsu_once (scope, at);
