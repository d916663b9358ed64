-- Messages of queues, from publishing until a consumer has handled them or given them up.

CREATE TABLE bongsu_queue_messages (
    id           BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    queue        TEXT COLLATE "C" NOT NULL,
    message_id   TEXT COLLATE "C" NOT NULL,
    topic        TEXT COLLATE "C" NOT NULL,
    -- Empty: the message has no key.
    message_key  TEXT COLLATE "C" NOT NULL,
    -- 0: the message is outside the order of its key, because it has no key or was redriven.
    is_ordered   BIGINT NOT NULL,
    -- A JSON object.
    headers      TEXT COLLATE "C" NOT NULL,
    payload      TEXT COLLATE "C" NOT NULL,
    -- 1: the payload is written in base64, because it is not text.
    is_base64    BIGINT NOT NULL,
    published_at BIGINT NOT NULL,
    -- NULL: the message can be handled now. Otherwise it is parked after a failure until then, or behind another message
    -- of its key.
    ready_at     BIGINT,
    -- The key of a message that is not ready and is in the order of its key; NULL for all others.
    waiting_key  TEXT COLLATE "C",
    attempts     BIGINT NOT NULL
);

CREATE INDEX bongsu_queue_messages_ready ON bongsu_queue_messages (queue, id) WHERE ready_at IS NULL;
CREATE INDEX bongsu_queue_messages_due ON bongsu_queue_messages (queue, ready_at, id) WHERE ready_at IS NOT NULL;
CREATE INDEX bongsu_queue_messages_waiting ON bongsu_queue_messages (queue, waiting_key, id);

-- The consumer of each queue: only the one with the last number may change the queue's messages.
CREATE TABLE bongsu_queue_consumers (
    queue TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
);

-- Messages that were given up.
CREATE TABLE bongsu_queue_dead_letters (
    id           BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    queue        TEXT COLLATE "C" NOT NULL,
    message_id   TEXT COLLATE "C" NOT NULL,
    topic        TEXT COLLATE "C" NOT NULL,
    message_key  TEXT COLLATE "C" NOT NULL,
    headers      TEXT COLLATE "C" NOT NULL,
    payload      TEXT COLLATE "C" NOT NULL,
    is_base64    BIGINT NOT NULL,
    published_at BIGINT NOT NULL,
    attempts     BIGINT NOT NULL,
    reason       TEXT COLLATE "C" NOT NULL,
    failed_at    BIGINT NOT NULL
);

CREATE INDEX bongsu_queue_dead_letters_queue ON bongsu_queue_dead_letters (queue, id);
