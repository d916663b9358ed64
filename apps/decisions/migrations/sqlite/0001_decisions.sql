-- Decisions: what is being decided, what is proposed, who is for it, what is said. Who may take part is in `memberships`,
-- the outbox's. Ids are never given twice. Times are milliseconds since 1970.

CREATE TABLE decision_events (
    id                   INTEGER PRIMARY KEY AUTOINCREMENT,
    title                TEXT    NOT NULL,
    auto_approve_percent INTEGER NOT NULL CHECK (auto_approve_percent BETWEEN 1 AND 100),
    creator_id           TEXT    NOT NULL,
    created_at           INTEGER NOT NULL
) STRICT;

-- Whoever votes, decides or comments holds the row first.
CREATE TABLE decision_proposals (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id      INTEGER NOT NULL,
    proposal_type TEXT    NOT NULL CHECK (proposal_type IN ('assumption', 'criteria', 'conclusion')),
    content       TEXT    NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('PENDING', 'APPROVED', 'REJECTED')),
    proposer_id   TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    decided_at    INTEGER
) STRICT;

CREATE INDEX decision_proposals_of_event ON decision_proposals (event_id, id);

CREATE TABLE decision_votes (
    proposal_id INTEGER NOT NULL,
    user_id     TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (proposal_id, user_id)
) WITHOUT ROWID, STRICT;

CREATE TABLE decision_comments (
    id           INTEGER PRIMARY KEY AUTOINCREMENT,
    event_id     INTEGER NOT NULL,
    criterion_id INTEGER NOT NULL,
    author_id    TEXT    NOT NULL,
    content      TEXT    NOT NULL,
    created_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX decision_comments_of_event ON decision_comments (event_id);
CREATE INDEX decision_comments_of_criterion ON decision_comments (criterion_id, id);
