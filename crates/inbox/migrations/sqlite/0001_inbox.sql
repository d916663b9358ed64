-- What people were told of, and what became of it.

-- What happened, once for all who are told of it.
CREATE TABLE bongsu_notices (
    id         INTEGER PRIMARY KEY,
    event_id   TEXT    NOT NULL UNIQUE,
    type       TEXT    NOT NULL,
    ref_id     TEXT,
    actor_id   TEXT,
    payload    TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;

CREATE INDEX bongsu_notices_by_age ON bongsu_notices (created_at);

-- Whoever changes anything of a person's holds this row first: sequence, count and version change with the entries.
CREATE TABLE bongsu_people (
    person_id TEXT    NOT NULL PRIMARY KEY,
    last_seq  INTEGER NOT NULL,
    unread    INTEGER NOT NULL,
    version   INTEGER NOT NULL
) WITHOUT ROWID, STRICT;

-- A deleted one stays until it is too old, so that what is told again is not told twice.
CREATE TABLE bongsu_inbox (
    person_id  TEXT    NOT NULL,
    seq        INTEGER NOT NULL,
    notice_id  INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    read_at    INTEGER,
    deleted_at INTEGER,
    PRIMARY KEY (person_id, seq),
    UNIQUE (notice_id, person_id)
) WITHOUT ROWID, STRICT;

CREATE INDEX bongsu_inbox_unread ON bongsu_inbox (person_id, read_at, created_at);
CREATE INDEX bongsu_inbox_by_age ON bongsu_inbox (created_at);

CREATE TABLE bongsu_inbox_settings (
    person_id TEXT NOT NULL PRIMARY KEY,
    body      TEXT NOT NULL
) WITHOUT ROWID, STRICT;
