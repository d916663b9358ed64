-- Who may follow an event, and the triggers that give the end of a right its place among the rows of the outbox. Every step can
-- run again. A name in braces is given by the settings; what stands after a colon, or the name itself, is its default.

-- What another program has here is looked at before anything is changed. A name that nobody has says what is wrong, where a
-- statement cannot. What is rolled back has to be gone.
SET @step = (SELECT COALESCE(MAX('SELECT `{memberships_name:memberships} has to be an InnoDB table; see OUTBOX`'), 'DO 0')
    FROM information_schema.tables
    WHERE table_schema = {memberships_schema:DATABASE()} AND table_name = '{memberships_name:memberships}'
        AND engine <> 'InnoDB');
PREPARE step FROM @step;
EXECUTE step;
-- One that lacks a column is another program's. Numbers, and text that takes A for a, would let strangers in.
SET @step = (SELECT COALESCE(MAX('SELECT `{memberships_name:memberships}: needs a status and text ids (_bin); see OUTBOX`'), 'DO 0')
    FROM information_schema.tables AS known
    WHERE known.table_schema = {memberships_schema:DATABASE()} AND known.table_name = '{memberships_name:memberships}'
        AND 3 > (SELECT COUNT(*) FROM information_schema.columns AS wanted
            WHERE wanted.table_schema = known.table_schema AND wanted.table_name = known.table_name
                AND (wanted.column_name = '{member_status_name:status}'
                    OR (wanted.column_name IN ('{member_event_name:event_id}', '{member_user_name:user_id}')
                        AND wanted.data_type = 'varchar' AND RIGHT(wanted.collation_name, 4) = '_bin'))));
PREPARE step FROM @step;
EXECUTE step;
-- Of two rows for one person nobody could say which one counts.
SET @step = (SELECT COALESCE(MAX('SELECT `{memberships_name:memberships}: needs a unique key of event and person; see OUTBOX`'), 'DO 0')
    FROM information_schema.tables AS known
    WHERE known.table_schema = {memberships_schema:DATABASE()} AND known.table_name = '{memberships_name:memberships}'
        AND NOT EXISTS (SELECT 1 FROM information_schema.statistics AS one
            WHERE one.table_schema = known.table_schema AND one.table_name = known.table_name AND one.non_unique = 0
            GROUP BY one.index_name
            HAVING COUNT(*) = 2
                AND SUM(one.column_name IN ('{member_event_name:event_id}', '{member_user_name:user_id}')
                    AND one.sub_part IS NULL) = 2));
PREPARE step FROM @step;
EXECUTE step;
SET @step = (SELECT IF(COUNT(*) = 1, 'DO 0', 'SELECT `the database of OUTBOX_MEMBERSHIP_TABLE is missing`')
    FROM information_schema.schemata WHERE schema_name = {memberships_schema:DATABASE()});
PREPARE step FROM @step;
EXECUTE step;
DEALLOCATE PREPARE step;
-- End of checks.

CREATE TABLE IF NOT EXISTS {memberships} (
    {member_event:event_id} VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    {member_user:user_id}   VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NOT NULL,
    {member_status:status}  VARCHAR(16)  CHARACTER SET ascii COLLATE ascii_bin NOT NULL DEFAULT 'PENDING'
        CHECK ({member_status:status} IN ('PENDING', 'ACCEPTED', 'REJECTED')),
    PRIMARY KEY ({member_event:event_id}, {member_user:user_id})
) ENGINE = InnoDB;

-- A right that ends has its place in the order of the rows, whoever ends it. It is written by this name, because a session's
-- temporary table would take the place of the other one. A view and triggers stand in the database of the table that they serve.
CREATE OR REPLACE VIEW {beside_memberships:}bongsu_outbox_ended AS
    SELECT event_type, payload, target_event_id, status FROM {outbox_events};
DROP TRIGGER IF EXISTS {beside_memberships:}bongsu_membership_changed;
CREATE TRIGGER {beside_memberships:}bongsu_membership_changed AFTER UPDATE ON {memberships} FOR EACH ROW
BEGIN
    -- Blanks at an end count: text is compared without them here.
    IF OLD.{member_status:status} = 'ACCEPTED'
        AND NOT (BINARY NEW.{member_status:status} <=> BINARY 'ACCEPTED'
            AND BINARY NEW.{member_event:event_id} <=> BINARY OLD.{member_event:event_id}
            AND BINARY NEW.{member_user:user_id} <=> BINARY OLD.{member_user:user_id}) THEN
        INSERT INTO {beside_memberships:}bongsu_outbox_ended (event_type, payload, target_event_id, status)
        VALUES ('system.removed', JSON_OBJECT('userId', OLD.{member_user:user_id}), OLD.{member_event:event_id}, 'DONE');
    END IF;
END;
DROP TRIGGER IF EXISTS {beside_memberships:}bongsu_membership_deleted;
CREATE TRIGGER {beside_memberships:}bongsu_membership_deleted AFTER DELETE ON {memberships} FOR EACH ROW
BEGIN
    IF OLD.{member_status:status} = 'ACCEPTED' THEN
        INSERT INTO {beside_memberships:}bongsu_outbox_ended (event_type, payload, target_event_id, status)
        VALUES ('system.removed', JSON_OBJECT('userId', OLD.{member_user:user_id}), OLD.{member_event:event_id}, 'DONE');
    END IF;
END;
