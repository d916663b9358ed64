-- A change and its event, committed together. The same file runs on all three databases, beside a hub that has made its tables:
--
--   psql "$DATABASE_URL" -v ON_ERROR_STOP=1 -f change.sql
--   mariadb --host=127.0.0.1 --user=app --password app < change.sql
--   sqlite3 -bail -cmd '.timeout 5000' bongsu-data/bongsu.db < change.sql
--
-- It runs once: the next time its task is there already, and so nothing is told either.

CREATE TABLE IF NOT EXISTS tasks (id VARCHAR(36) PRIMARY KEY, title VARCHAR(200) NOT NULL);

BEGIN;
INSERT INTO tasks (id, title) VALUES ('sql-1', 'Buy bread');
INSERT INTO outbox_events (event_type, payload, target_event_id)
VALUES ('task.added.v1', '{"task_id":"sql-1","title":"Buy bread"}', '42');
COMMIT;

-- What is rolled back takes its event along: nobody hears of the milk.
BEGIN;
INSERT INTO tasks (id, title) VALUES ('sql-2', 'Buy milk');
INSERT INTO outbox_events (event_type, payload, target_event_id)
VALUES ('task.added.v1', '{"task_id":"sql-2","title":"Buy milk"}', '42');
ROLLBACK;
