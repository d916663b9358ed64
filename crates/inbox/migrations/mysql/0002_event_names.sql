-- Event ids of rooms and of services are two name spaces. A type with a dot in it is that of a room's event, so notices
-- that are there belong to one of the two already, and so do those of a hub of an earlier version that still runs.
-- One statement, unless an earlier start has made it.

SET @step = (SELECT IF(COUNT(*) > 0, 'DO 0', 'ALTER TABLE bongsu_notices
        ADD COLUMN of_room TINYINT GENERATED ALWAYS AS (INSTR(type, ''.'') > 0) STORED,
        DROP INDEX event_id,
        ADD UNIQUE INDEX bongsu_notices_once (event_id, of_room)')
    FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name = 'bongsu_notices' AND column_name = 'of_room');
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
