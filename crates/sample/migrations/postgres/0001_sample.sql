-- A table of the sample part.

CREATE TABLE IF NOT EXISTS bongsu_sample (
    id INTEGER PRIMARY KEY
);
