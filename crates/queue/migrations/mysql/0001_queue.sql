-- Messages of queues, from publishing until a consumer has handled them or given them up.

CREATE TABLE IF NOT EXISTS bongsu_queue_messages (
    id           BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    queue        VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message_id   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic        VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- Empty: the message has no key.
    message_key  VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    -- 0: the message is outside the order of its key, because it has no key or was redriven.
    is_ordered   BIGINT NOT NULL,
    -- A JSON object.
    headers      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    payload      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    -- 1: the payload is written in base64, because it is not text.
    is_base64    BIGINT NOT NULL,
    published_at BIGINT NOT NULL,
    -- NULL: the message can be handled now. Otherwise it is parked after a failure until then, or behind another message
    -- of its key.
    ready_at     BIGINT,
    -- The key of a message that is not ready and is in the order of its key; NULL for all others.
    waiting_key  VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin,
    attempts     BIGINT NOT NULL,
    INDEX bongsu_queue_messages_ready (queue, ready_at, id),
    INDEX bongsu_queue_messages_waiting (queue, waiting_key, id)
) ENGINE = InnoDB;

-- The consumer of each queue: only the one with the last number may change the queue's messages.
CREATE TABLE IF NOT EXISTS bongsu_queue_consumers (
    queue VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    fence BIGINT NOT NULL
) ENGINE = InnoDB;

-- Messages that were given up.
CREATE TABLE IF NOT EXISTS bongsu_queue_dead_letters (
    id           BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    queue        VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message_id   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    topic        VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    message_key  VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    headers      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    payload      LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    is_base64    BIGINT NOT NULL,
    published_at BIGINT NOT NULL,
    attempts     BIGINT NOT NULL,
    reason       VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    failed_at    BIGINT NOT NULL,
    INDEX bongsu_queue_dead_letters_queue (queue, id)
) ENGINE = InnoDB;
