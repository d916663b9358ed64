-- Event ids of rooms and of services are two name spaces. A type with a dot in it is that of a room's event, so notices
-- that are there belong to one of the two already.

CREATE TABLE bongsu_notices_renewed (
    id         INTEGER PRIMARY KEY,
    event_id   TEXT    NOT NULL,
    of_room    INTEGER NOT NULL GENERATED ALWAYS AS (instr(type, '.') > 0) VIRTUAL,
    type       TEXT    NOT NULL,
    ref_id     TEXT,
    actor_id   TEXT,
    payload    TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    UNIQUE (event_id, of_room)
) STRICT;

INSERT INTO bongsu_notices_renewed (id, event_id, type, ref_id, actor_id, payload, created_at)
SELECT id, event_id, type, ref_id, actor_id, payload, created_at FROM bongsu_notices;

DROP TABLE bongsu_notices;
ALTER TABLE bongsu_notices_renewed RENAME TO bongsu_notices;

CREATE INDEX bongsu_notices_by_age ON bongsu_notices (created_at);
