-- Messages of queues, from publishing until a consumer has handled them or given them up.

CREATE TABLE bongsu_queue_messages (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    queue        TEXT    NOT NULL,
    message_id   TEXT    NOT NULL,
    topic        TEXT    NOT NULL,
    -- Empty: the message has no key.
    message_key  TEXT    NOT NULL,
    -- The number of the message among those of its key, from 1 on. 0: the order of publishing counts.
    sequence     INTEGER NOT NULL,
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

CREATE INDEX bongsu_queue_messages_ready ON bongsu_queue_messages (queue, ready_at, id);
CREATE INDEX bongsu_queue_messages_waiting ON bongsu_queue_messages (queue, waiting_key, sequence, id);

-- The number of the last message of each key that was handled or given up.
CREATE TABLE bongsu_queue_sequences (
    queue       TEXT    NOT NULL,
    message_key TEXT    NOT NULL,
    sequence    INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (queue, message_key)
) STRICT, WITHOUT ROWID;

CREATE INDEX bongsu_queue_sequences_age ON bongsu_queue_sequences (updated_at);

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
    sequence     INTEGER NOT NULL,
    headers      TEXT    NOT NULL,
    payload      TEXT    NOT NULL,
    is_base64    INTEGER NOT NULL,
    published_at INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    reason       TEXT    NOT NULL,
    failed_at    INTEGER NOT NULL
) STRICT;

CREATE INDEX bongsu_queue_dead_letters_queue ON bongsu_queue_dead_letters (queue, id);
