-- Follow-up records of which no entries can be made, until an operator has them tried again or drops them.

CREATE TABLE bongsu_inbox_dead_letters (
    id         BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    subject    TEXT   NOT NULL,
    type       TEXT   NOT NULL,
    -- In base64, because it may be any bytes.
    record     TEXT   NOT NULL,
    attempts   BIGINT NOT NULL,
    reason     TEXT   NOT NULL,
    created_at BIGINT NOT NULL
);
