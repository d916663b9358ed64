-- What people were told of, and what became of it.

-- What happened, once for all who are told of it.
CREATE TABLE bongsu_notices (
    id         BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    event_id   TEXT COLLATE "C" NOT NULL UNIQUE,
    type       TEXT COLLATE "C" NOT NULL,
    ref_id     TEXT COLLATE "C",
    actor_id   TEXT COLLATE "C",
    payload    TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE INDEX bongsu_notices_by_age ON bongsu_notices (created_at);

-- Whoever changes anything of a person's holds this row first: sequence, count and version change with the entries.
CREATE TABLE bongsu_people (
    person_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    last_seq  BIGINT NOT NULL,
    unread    BIGINT NOT NULL,
    version   BIGINT NOT NULL
) WITH (fillfactor = 70);

-- A deleted one stays until it is too old, so that what is told again is not told twice.
CREATE TABLE bongsu_inbox (
    person_id  TEXT COLLATE "C" NOT NULL,
    seq        BIGINT NOT NULL,
    notice_id  BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    read_at    BIGINT,
    deleted_at BIGINT,
    PRIMARY KEY (person_id, seq),
    UNIQUE (notice_id, person_id)
);

CREATE INDEX bongsu_inbox_unread ON bongsu_inbox (person_id, read_at, created_at);
CREATE INDEX bongsu_inbox_by_age ON bongsu_inbox (created_at);

CREATE TABLE bongsu_inbox_settings (
    person_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    body      TEXT NOT NULL
);
