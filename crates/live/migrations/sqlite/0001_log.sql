-- The log of every subject, the answers kept for repeated requests, and what is still to be done for people.

CREATE TABLE subjects (
    id           INTEGER PRIMARY KEY,
    subject      TEXT    NOT NULL UNIQUE,
    -- The last id that was given. It outlives the entries, so that no id is ever given twice.
    ms           INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    previous_ms  INTEGER NOT NULL DEFAULT 0,
    previous_seq INTEGER NOT NULL DEFAULT 0,
    -- How many events there ever were, and how many of them were trimmed.
    number       INTEGER NOT NULL,
    trimmed      INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE entries (
    subject_id   INTEGER NOT NULL,
    ms           INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    number       INTEGER NOT NULL,
    type         TEXT    NOT NULL,
    payload      TEXT    NOT NULL,
    publisher_id TEXT,
    timestamp    INTEGER NOT NULL,
    PRIMARY KEY (subject_id, ms, seq)
) WITHOUT ROWID, STRICT;

-- Rows are added at the end and removed at the beginning: the order of ids is the order of age.
CREATE TABLE idempotency (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    subject_id INTEGER NOT NULL,
    key        TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    ms         INTEGER NOT NULL,
    seq        INTEGER NOT NULL,
    timestamp  INTEGER NOT NULL,
    audience   INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    UNIQUE (subject_id, key)
) STRICT;

-- A whole copy of the event, so that trimming the log takes nothing away from its recipients.
CREATE TABLE follow_ups (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    record TEXT    NOT NULL
) STRICT;
