-- Who may follow an event, and the triggers that give the end of a right its place among the rows of the outbox. Every step can
-- run again. A name in braces is given by the settings; what stands after a colon, or the name itself, is its default.

DROP TRIGGER IF EXISTS bongsu_membership_changed;
DROP TRIGGER IF EXISTS bongsu_membership_deleted;
DROP TRIGGER IF EXISTS bongsu_membership_replaced;
DROP TRIGGER IF EXISTS bongsu_membership_moved;

CREATE TABLE IF NOT EXISTS {memberships} (
    {member_event:event_id} TEXT NOT NULL,
    {member_user:user_id}   TEXT NOT NULL,
    {member_status:status}  TEXT NOT NULL DEFAULT 'PENDING'
        CHECK ({member_status:status} IN ('PENDING', 'ACCEPTED', 'REJECTED')),
    PRIMARY KEY ({member_event:event_id}, {member_user:user_id})
);

-- Triggers do not ask whether these are there; one that is another program's is found here. OUTBOX=off leaves it alone.
SELECT COUNT({member_status:status}) FROM {memberships}
WHERE {member_event:event_id} IS NULL AND {member_user:user_id} IS NULL;
-- Numbers, and text that takes A for a, would let strangers in. A check's name says what is wrong, where a statement cannot.
CREATE TABLE bongsu_memberships_checked (
    wrong INTEGER CONSTRAINT "{memberships_name:memberships}: {member_event_name:event_id} and {member_user_name:user_id} have to be TEXT that tells A from a; OUTBOX=off leaves the table alone, OUTBOX_MEMBERSHIP_QUERY asks it otherwise" CHECK (wrong = 0),
    keys INTEGER CONSTRAINT "{memberships_name:memberships}: needs a unique key of {member_event_name:event_id} and {member_user_name:user_id}; OUTBOX=off leaves the table alone, OUTBOX_MEMBERSHIP_QUERY asks it otherwise" CHECK (keys > 0)
);
INSERT INTO bongsu_memberships_checked
SELECT (SELECT COUNT(*) FROM pragma_table_info('{memberships_name:memberships}')
        WHERE lower(name) IN (lower('{member_event_name:event_id}'), lower('{member_user_name:user_id}'))
            AND type NOT LIKE '%TEXT%' AND type NOT LIKE '%CHAR%')
    + (SELECT COUNT(*) FROM sqlite_schema
       WHERE type = 'table' AND name = '{memberships_name:memberships}' COLLATE NOCASE AND sql LIKE '%COLLATE%'),
    -- Of two rows for one person nobody could say which one counts.
    (SELECT COUNT(*) FROM pragma_index_list('{memberships_name:memberships}') AS known
     WHERE known."unique" = 1 AND known.partial = 0
         AND (SELECT COUNT(*) FROM pragma_index_info(known.name)) = 2
         AND (SELECT COUNT(*) FROM pragma_index_info(known.name) AS part
              WHERE lower(part.name) IN (lower('{member_event_name:event_id}'), lower('{member_user_name:user_id}'))) = 2);
DROP TABLE bongsu_memberships_checked;

-- A right that ends has its place in the order of the rows, whoever ends it.
CREATE TRIGGER bongsu_membership_changed AFTER UPDATE ON {memberships}
WHEN OLD.{member_status:status} = 'ACCEPTED'
    AND (NEW.{member_status:status} IS NOT 'ACCEPTED' OR NEW.{member_event:event_id} IS NOT OLD.{member_event:event_id}
        OR NEW.{member_user:user_id} IS NOT OLD.{member_user:user_id})
BEGIN
    INSERT INTO {outbox_events} (event_type, payload, target_event_id, status)
    VALUES ('system.removed', json_object('userId', CAST(OLD.{member_user:user_id} AS TEXT)),
        CAST(OLD.{member_event:event_id} AS TEXT), 'DONE');
END;

CREATE TRIGGER bongsu_membership_deleted AFTER DELETE ON {memberships}
WHEN OLD.{member_status:status} = 'ACCEPTED'
BEGIN
    INSERT INTO {outbox_events} (event_type, payload, target_event_id, status)
    VALUES ('system.removed', json_object('userId', CAST(OLD.{member_user:user_id} AS TEXT)),
        CAST(OLD.{member_event:event_id} AS TEXT), 'DONE');
END;

-- OR REPLACE takes a row's place without a word.
CREATE TRIGGER bongsu_membership_replaced AFTER INSERT ON {memberships}
WHEN NEW.{member_status:status} IS NOT 'ACCEPTED'
BEGIN
    INSERT INTO {outbox_events} (event_type, payload, target_event_id, status)
    VALUES ('system.removed', json_object('userId', CAST(NEW.{member_user:user_id} AS TEXT)),
        CAST(NEW.{member_event:event_id} AS TEXT), 'DONE');
END;

CREATE TRIGGER bongsu_membership_moved AFTER UPDATE ON {memberships}
WHEN NEW.{member_status:status} IS NOT 'ACCEPTED' AND (NEW.{member_event:event_id} IS NOT OLD.{member_event:event_id}
    OR NEW.{member_user:user_id} IS NOT OLD.{member_user:user_id})
BEGIN
    INSERT INTO {outbox_events} (event_type, payload, target_event_id, status)
    VALUES ('system.removed', json_object('userId', CAST(NEW.{member_user:user_id} AS TEXT)),
        CAST(NEW.{member_event:event_id} AS TEXT), 'DONE');
END;
