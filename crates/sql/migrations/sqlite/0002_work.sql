-- Work that is to be done: claimed by one worker at a time, until it is done.

CREATE TABLE bongsu_work (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    kind          TEXT    NOT NULL,
    work_key      TEXT    NOT NULL,
    body          TEXT    NOT NULL,
    not_before    INTEGER NOT NULL,
    attempts      INTEGER NOT NULL,
    claimed_by    TEXT,
    claimed_until INTEGER NOT NULL,
    reason        TEXT,
    created_at    INTEGER NOT NULL,
    done_at       INTEGER
) STRICT;

CREATE INDEX bongsu_work_order ON bongsu_work (kind, done_at, id);
