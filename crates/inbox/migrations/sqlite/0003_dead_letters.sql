-- Follow-up records of which no entries can be made, until an operator has them tried again or drops them.

CREATE TABLE bongsu_inbox_dead_letters (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    subject    TEXT    NOT NULL,
    type       TEXT    NOT NULL,
    -- In base64, because it may be any bytes.
    record     TEXT    NOT NULL,
    attempts   INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    created_at INTEGER NOT NULL
) STRICT;
