-- The outbox: rows that programs write with their own changes. Times are milliseconds since 1970. Every step can run again.
-- A name in braces is given by the settings; what stands after a colon, or the name itself, is its default.

-- Triggers keep a table from being renamed that they write to.
DROP TRIGGER IF EXISTS bongsu_membership_changed;
DROP TRIGGER IF EXISTS bongsu_membership_deleted;
DROP TRIGGER IF EXISTS bongsu_membership_replaced;
DROP TRIGGER IF EXISTS bongsu_membership_moved;

-- What a program may have had here before. Columns that it does not have are taken from the outer query, which has a
-- value for each: a name means the innermost table that knows it.
CREATE TABLE IF NOT EXISTS {outbox_events} (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT);

-- What hangs on a table goes with it, without a word. A check's name says what is wrong, where a statement cannot.
CREATE TABLE bongsu_outbox_checked (
    ids INTEGER CONSTRAINT "{outbox_name:outbox_events}: ids have to be whole numbers; OUTBOX=off leaves the table alone" CHECK (ids = 0),
    bound INTEGER CONSTRAINT "{outbox_name:outbox_events}: the table is made anew, and triggers, indexes, views and foreign keys on it would be lost; remove them, and add them again afterwards. OUTBOX=off leaves the table alone" CHECK (bound = 0)
);
INSERT INTO bongsu_outbox_checked
SELECT (SELECT COUNT(*) FROM {outbox_events} WHERE typeof(id) <> 'integer'),
    (SELECT COUNT(*) FROM sqlite_schema
     WHERE sql IS NOT NULL AND ((type IN ('trigger', 'index') AND tbl_name = '{outbox_name:outbox_events}' COLLATE NOCASE)
             OR (type IN ('trigger', 'view')
                 AND lower(sql || ' ') GLOB '*[^a-z0-9_]' || lower('{outbox_name:outbox_events}') || '[^a-z0-9_]*'))
         AND name NOT IN ('{outbox_name:outbox_events}_unsequenced', '{outbox_name:outbox_events}_order',
             '{outbox_name:outbox_events}_of_target', '{outbox_name:outbox_events}_failed'))
    + (SELECT COUNT(*) FROM sqlite_schema AS other, pragma_foreign_key_list(other.name) AS bond
       WHERE other.type = 'table' AND bond."table" = '{outbox_name:outbox_events}' COLLATE NOCASE);
DROP TABLE bongsu_outbox_checked;

CREATE TABLE bongsu_outbox_made (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    event_type      TEXT    NOT NULL,
    payload         TEXT    NOT NULL,
    target_event_id TEXT    NOT NULL DEFAULT '-',
    position        INTEGER,
    status          TEXT    NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSING', 'DONE', 'FAILED')),
    attempts        INTEGER NOT NULL DEFAULT 0,
    available_at    INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    created_at      INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)),
    traceparent     TEXT
) STRICT;

INSERT INTO bongsu_outbox_made
    (id, event_type, payload, target_event_id, position, status, attempts, available_at, created_at, traceparent)
SELECT
    given.id,
    COALESCE(CAST(given.event_type AS TEXT), ''),
    COALESCE(CAST(given.payload AS TEXT), 'null'),
    COALESCE(
        (SELECT CAST(target_event_id AS TEXT) FROM (SELECT * FROM {outbox_events} WHERE id = given.id)),
        CASE WHEN json_valid(given.payload) THEN CAST(json_extract(given.payload, '$.event_id') AS TEXT) END,
        '-'),
    -- Positions are ours to give.
    (SELECT position FROM (SELECT * FROM {outbox_events} WHERE id = given.id)
     WHERE EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'bongsu_outbox_head')),
    (SELECT CASE WHEN status IN ('PENDING', 'PROCESSING', 'DONE', 'FAILED') THEN status ELSE 'PENDING' END
     FROM (SELECT * FROM {outbox_events} WHERE id = given.id)),
    (SELECT COALESCE(CAST(attempts AS INTEGER), 0) FROM (SELECT * FROM {outbox_events} WHERE id = given.id)),
    given.now,
    COALESCE(
        (SELECT CASE typeof(created_at) WHEN 'integer' THEN created_at
                ELSE CAST((julianday(created_at) - 2440587.5) * 86400000 AS INTEGER) END
         FROM (SELECT * FROM {outbox_events} WHERE id = given.id)),
        given.now),
    (SELECT traceparent FROM (SELECT * FROM {outbox_events} WHERE id = given.id))
FROM (SELECT id, event_type, payload, NULL AS target_event_id, NULL AS position, 'PENDING' AS status, 0 AS attempts,
             NULL AS created_at, NULL AS traceparent,
             CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) AS now
      FROM {outbox_events}) AS given;

DROP TABLE {outbox_events};
ALTER TABLE bongsu_outbox_made RENAME TO {outbox_events};

CREATE INDEX {outbox_events_unsequenced} ON {outbox_events} (id) WHERE position IS NULL;
CREATE UNIQUE INDEX {outbox_events_order} ON {outbox_events} (position) WHERE position IS NOT NULL;
CREATE INDEX {outbox_events_of_target} ON {outbox_events} (target_event_id, position);
CREATE INDEX {outbox_events_failed} ON {outbox_events} (id) WHERE status = 'FAILED';

-- The last position that was given. Whoever gives positions holds this row.
CREATE TABLE IF NOT EXISTS bongsu_outbox_head (
    one      INTEGER PRIMARY KEY,
    position INTEGER NOT NULL
) STRICT;

INSERT OR IGNORE INTO bongsu_outbox_head (one, position) VALUES (1, 0);

-- The last row of each target that was too old to be kept.
CREATE TABLE IF NOT EXISTS bongsu_outbox_gone (
    target_event_id TEXT    NOT NULL PRIMARY KEY,
    position        INTEGER NOT NULL,
    id              INTEGER NOT NULL
) WITHOUT ROWID, STRICT;
CREATE INDEX IF NOT EXISTS bongsu_outbox_gone_ids ON bongsu_outbox_gone (id);

-- A database that was restored gives ids again: those up to this one, to rows after this position.
CREATE TABLE IF NOT EXISTS bongsu_outbox_again (
    position INTEGER NOT NULL,
    id       INTEGER NOT NULL,
    PRIMARY KEY (position, id)
) WITHOUT ROWID, STRICT;

-- Why a row was given up, and which of those are to be tried again all the same.
CREATE TABLE IF NOT EXISTS bongsu_outbox_failures (
    id     INTEGER PRIMARY KEY,
    reason TEXT    NOT NULL
) STRICT;
CREATE TABLE IF NOT EXISTS bongsu_outbox_redriven (id INTEGER PRIMARY KEY) STRICT;

-- Until when all positions up to one had been given: how long streams have had the rows.
CREATE TABLE IF NOT EXISTS bongsu_outbox_times (
    position INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL
) STRICT;
