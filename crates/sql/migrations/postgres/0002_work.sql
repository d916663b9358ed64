-- Work that is to be done: claimed by one worker at a time, until it is done.

CREATE TABLE bongsu_work (
    id            BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    kind          TEXT COLLATE "C" NOT NULL,
    work_key      TEXT COLLATE "C" NOT NULL,
    body          TEXT COLLATE "C" NOT NULL,
    not_before    BIGINT NOT NULL,
    attempts      BIGINT NOT NULL,
    claimed_by    TEXT COLLATE "C",
    claimed_until BIGINT NOT NULL,
    reason        TEXT COLLATE "C",
    created_at    BIGINT NOT NULL,
    done_at       BIGINT
);

CREATE INDEX bongsu_work_order ON bongsu_work (kind, done_at, id);
