-- The outbox: rows that programs write with their own changes. Times are milliseconds since 1970. Every step can run again.
-- A name in braces is given by the settings; what stands after a colon, or the name itself, is its default.

SET SESSION group_concat_max_len = 65536;

-- What another program has here is looked at before anything is changed: OUTBOX=off leaves all this alone. A name that nobody
-- has says what is wrong, where a statement cannot. What is rolled back has to be gone.
SET @step = (SELECT COALESCE(MAX('SELECT `{outbox_name:outbox_events} has to be an InnoDB table; see OUTBOX`'), 'DO 0')
    FROM information_schema.tables
    WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}' AND engine <> 'InnoDB');
PREPARE step FROM @step;
EXECUTE step;
SET @step = (SELECT COALESCE(MAX(CONCAT('SELECT `{outbox_name:outbox_events}.', name, ' ', demand, '; see OUTBOX`')), 'DO 0')
    FROM (SELECT column_name AS name, CASE
            WHEN column_name IN ('id', 'position', 'attempts', 'available_at', 'created_at')
                    AND data_type NOT IN ('tinyint', 'smallint', 'mediumint', 'int', 'bigint')
                    AND NOT (column_name IN ('available_at', 'created_at') AND data_type IN ('datetime', 'timestamp'))
                THEN 'has to be a whole number'
            WHEN column_name = 'id' AND (column_key <> 'PRI' OR extra NOT LIKE '%auto_increment%'
                    OR (SELECT COUNT(*) FROM information_schema.statistics
                        WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}'
                            AND index_name = 'PRIMARY') > 1)
                THEN 'has to be a key that counts itself'
            WHEN column_name = 'event_type'
                    AND (data_type NOT IN ('char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext')
                        OR character_maximum_length < 14)
                THEN 'has to be text of 14 or more'
            WHEN column_name = 'status'
                    AND (data_type NOT IN ('char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext')
                        OR character_maximum_length < 10)
                    AND NOT (column_type LIKE 'enum%' AND column_type LIKE '%''PENDING''%' AND column_type LIKE '%''PROCESSING''%'
                        AND column_type LIKE '%''DONE''%' AND column_type LIKE '%''FAILED''%')
                THEN 'has to be text of 10 or more'
            WHEN column_name = 'payload'
                    AND (data_type NOT IN ('varchar', 'text', 'mediumtext', 'longtext', 'json') OR character_maximum_length < 160)
                THEN 'has to be text of 160 or more'
            WHEN column_name = 'traceparent'
                    AND (data_type NOT IN ('char', 'varchar', 'tinytext', 'text', 'mediumtext', 'longtext')
                        OR character_maximum_length < 55)
                THEN 'has to be text of 55 or more'
            WHEN column_name = 'position' AND is_nullable = 'NO' THEN 'has to take NULL'
        END AS demand
        FROM information_schema.columns
        WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}') AS found
    WHERE demand IS NOT NULL);
PREPARE step FROM @step;
EXECUTE step;
-- One that lacks what it has to have is another program's.
SET @step = (SELECT COALESCE(MAX('SELECT `{outbox_name:outbox_events} needs id, event_type and payload; see OUTBOX`'), 'DO 0')
    FROM information_schema.tables AS known
    WHERE known.table_schema = {outbox_schema:DATABASE()} AND known.table_name = '{outbox_name:outbox_events}'
        AND 3 > (SELECT COUNT(*) FROM information_schema.columns AS wanted
            WHERE wanted.table_schema = known.table_schema AND wanted.table_name = known.table_name
                AND wanted.column_name IN ('id', 'event_type', 'payload')));
PREPARE step FROM @step;
EXECUTE step;
SET @step = (SELECT IF(COUNT(*) = 1, 'DO 0', 'SELECT `the database of OUTBOX_TABLE is missing`')
    FROM information_schema.schemata WHERE schema_name = {outbox_schema:DATABASE()});
PREPARE step FROM @step;
EXECUTE step;
-- The hub keeps ids as signed numbers.
SET @too_large = 0;
SET @step = (SELECT COALESCE(MAX('SELECT COALESCE(MAX(id) > 9223372036854775807, 0) INTO @too_large FROM {outbox_events}'), 'DO 0')
    FROM information_schema.tables
    WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}');
PREPARE step FROM @step;
EXECUTE step;
SET @step = IF(@too_large, 'SELECT `{outbox_name:outbox_events}.id has to stay below 2 to the 63; see OUTBOX`', 'DO 0');
PREPARE step FROM @step;
EXECUTE step;
-- Rows of every status have to fit, whatever else the program demands of its table. They are tried, and undone.
SET @row = NULL;
SET @columns = NULL;
SELECT GROUP_CONCAT(column_name ORDER BY column_name SEPARATOR ', '),
    GROUP_CONCAT(CASE
        WHEN column_name = 'event_type' THEN '''system.removed'''
        WHEN column_name = 'payload' THEN '''{}'''
        WHEN column_name = 'status' THEN '''?'''
        WHEN column_name = 'target_event_id' THEN '''-'''
        WHEN data_type IN ('datetime', 'timestamp') THEN 'UTC_TIMESTAMP()'
        ELSE '0'
    END ORDER BY column_name SEPARATOR ', ')
INTO @columns, @row
FROM information_schema.columns
WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}'
    AND column_name IN ('event_type', 'payload', 'status', 'target_event_id', 'attempts', 'available_at', 'created_at');
SET @step = IF(@columns IS NULL, 'DO 0', CONCAT('INSERT INTO {outbox_events} (', @columns, ') VALUES (',
    REPLACE(@row, '?', 'PENDING'), '), (', REPLACE(@row, '?', 'PROCESSING'), '), (', REPLACE(@row, '?', 'DONE'), '), (',
    REPLACE(@row, '?', 'FAILED'), ')'));
PREPARE step FROM @step;
START TRANSACTION;
EXECUTE step;
ROLLBACK;
-- End of checks.

CREATE TABLE IF NOT EXISTS {outbox_events} (
    id         BIGINT NOT NULL PRIMARY KEY AUTO_INCREMENT,
    event_type VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    payload    LONGTEXT     CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;

-- A program's own times make room for numbers, which take their values over.
SET @step = (SELECT COALESCE(MAX('ALTER TABLE {outbox_events} CHANGE created_at bongsu_created DATETIME(6) NULL'), 'DO 0')
    FROM information_schema.columns
    WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}'
        AND column_name = 'created_at' AND data_type IN ('datetime', 'timestamp'));
PREPARE step FROM @step;
EXECUTE step;
SET @step = (SELECT COALESCE(MAX('ALTER TABLE {outbox_events} DROP COLUMN available_at'), 'DO 0')
    FROM information_schema.columns
    WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}'
        AND column_name = 'available_at' AND data_type IN ('datetime', 'timestamp'));
PREPARE step FROM @step;
EXECUTE step;

-- A table that a program had already gets the columns that it does not have.
SET @missing = (SELECT GROUP_CONCAT(wanted.text SEPARATOR ', ') FROM (
    SELECT 'target_event_id' AS name,
        'ADD COLUMN target_event_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin' AS text
    UNION ALL SELECT 'position', 'ADD COLUMN position BIGINT'
    UNION ALL SELECT 'status', 'ADD COLUMN status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT ''PENDING'' CHECK (status IN (''PENDING'', ''PROCESSING'', ''DONE'', ''FAILED''))'
    UNION ALL SELECT 'attempts', 'ADD COLUMN attempts BIGINT NOT NULL DEFAULT 0'
    UNION ALL SELECT 'available_at', 'ADD COLUMN available_at BIGINT NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, ''1970-01-01 00:00:00'', UTC_TIMESTAMP(3)) DIV 1000)'
    UNION ALL SELECT 'created_at', 'ADD COLUMN created_at BIGINT NOT NULL DEFAULT (TIMESTAMPDIFF(MICROSECOND, ''1970-01-01 00:00:00'', UTC_TIMESTAMP(3)) DIV 1000)'
    UNION ALL SELECT 'traceparent', 'ADD COLUMN traceparent VARCHAR(255) CHARACTER SET ascii COLLATE ascii_bin'
) AS wanted WHERE NOT EXISTS (SELECT 1 FROM information_schema.columns AS known
    WHERE known.table_schema = {outbox_schema:DATABASE()} AND known.table_name = '{outbox_name:outbox_events}'
        AND known.column_name = wanted.name));
SET @step = IF(@missing IS NULL, 'DO 0', CONCAT('ALTER TABLE {outbox_events} ', @missing));
PREPARE step FROM @step;
EXECUTE step;

SET @step = (SELECT COALESCE(MAX('UPDATE {outbox_events} SET created_at = COALESCE(TIMESTAMPDIFF(MICROSECOND, ''1970-01-01 00:00:00'', bongsu_created) DIV 1000, 0) WHERE bongsu_created IS NOT NULL'), 'DO 0')
    FROM information_schema.columns
    WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}'
        AND column_name = 'bongsu_created');
PREPARE step FROM @step;
EXECUTE step;
SET @step = (SELECT COALESCE(MAX('ALTER TABLE {outbox_events} DROP COLUMN bongsu_created'), 'DO 0')
    FROM information_schema.columns
    WHERE table_schema = {outbox_schema:DATABASE()} AND table_name = '{outbox_name:outbox_events}'
        AND column_name = 'bongsu_created');
PREPARE step FROM @step;
EXECUTE step;

UPDATE {outbox_events}
SET target_event_id = COALESCE(
    IF(JSON_VALID(payload) AND JSON_TYPE(JSON_EXTRACT(payload, '$.event_id')) IN ('STRING', 'INTEGER')
            AND JSON_UNQUOTE(JSON_EXTRACT(payload, '$.event_id')) REGEXP '^[A-Za-z0-9._@:-]{1,128}$',
        JSON_UNQUOTE(JSON_EXTRACT(payload, '$.event_id')), NULL),
    '-')
WHERE target_event_id IS NULL;

ALTER TABLE {outbox_events}
    MODIFY target_event_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT '-';

-- No index here is unique beside the key: InnoDB would lock gaps to keep it so, and programs that write would wait.
SET @missing = (SELECT GROUP_CONCAT(wanted.text SEPARATOR ', ') FROM (
    SELECT '{outbox_name:outbox_events}_order' AS name, 'ADD INDEX {outbox_events_order} (position)' AS text
    UNION ALL SELECT '{outbox_name:outbox_events}_of_target', 'ADD INDEX {outbox_events_of_target} (target_event_id, position)'
    UNION ALL SELECT '{outbox_name:outbox_events}_status', 'ADD INDEX {outbox_events_status} (status)'
) AS wanted WHERE NOT EXISTS (SELECT 1 FROM information_schema.statistics AS known
    WHERE known.table_schema = {outbox_schema:DATABASE()} AND known.table_name = '{outbox_name:outbox_events}'
        AND known.index_name = wanted.name));
SET @step = IF(@missing IS NULL, 'DO 0', CONCAT('ALTER TABLE {outbox_events} ', @missing));
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;

-- The last position that was given. Whoever gives positions holds this row.
CREATE TABLE IF NOT EXISTS bongsu_outbox_head (
    one      BIGINT NOT NULL PRIMARY KEY,
    position BIGINT NOT NULL
) ENGINE = InnoDB;

INSERT IGNORE INTO bongsu_outbox_head (one, position) VALUES (1, 0);

-- The last row of each target that was too old to be kept.
CREATE TABLE IF NOT EXISTS bongsu_outbox_gone (
    target_event_id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
    position        BIGINT NOT NULL,
    id              BIGINT NOT NULL,
    INDEX bongsu_outbox_gone_ids (id)
) ENGINE = InnoDB;

-- A database that was restored gives ids again: those up to this one, to rows after this position.
CREATE TABLE IF NOT EXISTS bongsu_outbox_again (
    position BIGINT NOT NULL,
    id       BIGINT NOT NULL,
    PRIMARY KEY (position, id)
) ENGINE = InnoDB;

-- Why a row was given up, and which of those are to be tried again all the same.
CREATE TABLE IF NOT EXISTS bongsu_outbox_failures (
    id     BIGINT NOT NULL PRIMARY KEY,
    reason VARCHAR(1000) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL
) ENGINE = InnoDB;
CREATE TABLE IF NOT EXISTS bongsu_outbox_redriven (id BIGINT NOT NULL PRIMARY KEY) ENGINE = InnoDB;

-- Until when all positions up to one had been given: how long streams have had the rows.
CREATE TABLE IF NOT EXISTS bongsu_outbox_times (
    position BIGINT NOT NULL PRIMARY KEY,
    at       BIGINT NOT NULL
) ENGINE = InnoDB;
