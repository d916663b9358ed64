-- Messages of queues, from publishing until a consumer has handled them or given them up.

CREATE TABLE bongsu_queue_messages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    queue        TEXT    NOT NULL,
    message_id   TEXT    NOT NULL,
    topic        TEXT    NOT NULL,
    -- Empty: the message has no key.
    message_key  TEXT    NOT NULL,
    -- 0: the message is outside the order of its key, because it has no key or was redriven.
    is_ordered   INTEGER NOT NULL,
    -- A JSON object.
    headers      TEXT    NOT NULL,
    payload      TEXT    NOT NULL,
    -- 1: the payload is written in base64, because it is not text.
    is_base64    INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    -- NULL: the message can be handled now. Otherwise it is parked after a failure until then, or behind another message
    -- of its key.
    ready_at     INTEGER,
    -- The key of a message that is not ready and is in the order of its key; NULL for all others.
    waiting_key  TEXT,
    attempts     INTEGER NOT NULL
) STRICT;

CREATE INDEX bongsu_queue_messages_ready ON bongsu_queue_messages (queue, id) WHERE ready_at IS NULL;
CREATE INDEX bongsu_queue_messages_due ON bongsu_queue_messages (queue, ready_at, id) WHERE ready_at IS NOT NULL;
CREATE INDEX bongsu_queue_messages_waiting ON bongsu_queue_messages (queue, waiting_key, id);

-- The consumer of each queue: only the one with the last number may change the queue's messages.
CREATE TABLE bongsu_queue_consumers (
    queue TEXT    NOT NULL PRIMARY KEY,
    fence INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Messages that were given up.
CREATE TABLE bongsu_queue_dead_letters (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    queue        TEXT    NOT NULL,
    message_id   TEXT    NOT NULL,
    topic        TEXT    NOT NULL,
    message_key  TEXT    NOT NULL,
    headers      TEXT    NOT NULL,
    payload      TEXT    NOT NULL,
    is_base64    INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    reason       TEXT    NOT NULL,
    failed_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX bongsu_queue_dead_letters_queue ON bongsu_queue_dead_letters (queue, id);
