-- What was done once and is not done again.

CREATE TABLE bongsu_once (
    scope    TEXT COLLATE "C" NOT NULL,
    once_key TEXT COLLATE "C" NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (scope, once_key)
);

CREATE INDEX bongsu_once_age ON bongsu_once (scope, at);
