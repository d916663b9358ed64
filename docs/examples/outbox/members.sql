-- Person 7 may follow event 42. The same file runs on all three databases.

INSERT INTO memberships (event_id, user_id, status) VALUES ('42', '7', 'ACCEPTED');
