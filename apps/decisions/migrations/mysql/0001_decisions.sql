-- Decisions: what is being decided, what is proposed, who is for it, what is said. Who may take part is in `memberships`,
-- the outbox's. Times are milliseconds since 1970.

CREATE TABLE IF NOT EXISTS decision_events (
    id                   BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    title                TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    auto_approve_percent BIGINT NOT NULL CHECK (auto_approve_percent BETWEEN 1 AND 100),
    creator_id           VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at           BIGINT NOT NULL
) ENGINE = InnoDB;

-- Whoever votes, decides or comments holds the row first.
CREATE TABLE IF NOT EXISTS decision_proposals (
    id            BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    event_id      BIGINT NOT NULL,
    proposal_type VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (proposal_type IN ('assumption', 'criteria', 'conclusion')),
    content       TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    status        VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL
        CHECK (status IN ('PENDING', 'APPROVED', 'REJECTED')),
    proposer_id   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at    BIGINT NOT NULL,
    decided_at    BIGINT,
    INDEX decision_proposals_of_event (event_id, id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS decision_votes (
    proposal_id BIGINT NOT NULL,
    user_id     VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    created_at  BIGINT NOT NULL,
    PRIMARY KEY (proposal_id, user_id)
) ENGINE = InnoDB;

CREATE TABLE IF NOT EXISTS decision_comments (
    id           BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    event_id     BIGINT NOT NULL,
    criterion_id BIGINT NOT NULL,
    author_id    VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    content      TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    created_at   BIGINT NOT NULL,
    INDEX decision_comments_of_event (event_id),
    INDEX decision_comments_of_criterion (criterion_id, id)
) ENGINE = InnoDB;
