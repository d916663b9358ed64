-- Who may follow an event, and the triggers that give the end of a right its place among the rows of the outbox. Every step can
-- run again. A name in braces is given by the settings; what stands after a colon, or the name itself, is its default.

CREATE TABLE IF NOT EXISTS {memberships} (
    {member_event:event_id} TEXT COLLATE "C" NOT NULL,
    {member_user:user_id}   TEXT COLLATE "C" NOT NULL,
    {member_status:status}  TEXT COLLATE "C" NOT NULL DEFAULT 'PENDING'
        CHECK ({member_status:status} IN ('PENDING', 'ACCEPTED', 'REJECTED')),
    PRIMARY KEY ({member_event:event_id}, {member_user:user_id})
);

-- Numbers, and text that takes A for a, would let strangers in.
DO $$
DECLARE
    wrong text := (
        SELECT string_agg(wanted.name, ', ') FROM unnest(ARRAY[
            '{member_event_name:event_id}', '{member_user_name:user_id}', '{member_status_name:status}']) AS wanted (name)
        WHERE NOT EXISTS (
            SELECT 1 FROM information_schema.columns
            JOIN pg_attribute ON attrelid = '{memberships}'::regclass AND attname = column_name
            JOIN pg_collation ON pg_collation.oid = attcollation
            WHERE (table_schema, table_name) = (
                    SELECT nspname, relname FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
                    WHERE pg_class.oid = '{memberships}'::regclass)
                AND column_name = wanted.name AND data_type IN ('text', 'character varying') AND collisdeterministic));
BEGIN
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION '{memberships_name:memberships}: % have to be columns of text that tells A from a. OUTBOX=off leaves the table alone, OUTBOX_MEMBERSHIP_QUERY asks it otherwise', wrong;
    END IF;
    -- Of two rows for one person nobody could say which one counts.
    IF NOT EXISTS (
        SELECT 1 FROM pg_index
        WHERE indrelid = '{memberships}'::regclass AND indisunique AND indnkeyatts = 2 AND indpred IS NULL
            AND (SELECT COUNT(*) FROM pg_attribute
                 WHERE attrelid = indrelid AND attnum IN (indkey[0], indkey[1])
                     AND attname IN ('{member_event_name:event_id}', '{member_user_name:user_id}')) = 2) THEN
        RAISE EXCEPTION '{memberships_name:memberships}: needs a unique key of {member_event_name:event_id} and {member_user_name:user_id}. OUTBOX=off leaves the table alone, OUTBOX_MEMBERSHIP_QUERY asks it otherwise';
    END IF;
END
$$;

-- A right that ends has its place in the order of the outbox's rows, whoever ends it, wherever they look for tables, and also if
-- they may not write there themselves.
DROP FUNCTION IF EXISTS bongsu_membership_ended() CASCADE;
DROP FUNCTION IF EXISTS bongsu_memberships_ended() CASCADE;
CREATE FUNCTION bongsu_membership_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO {outbox_events} (event_type, payload, target_event_id, status)
    VALUES ('system.removed', json_build_object('userId', OLD.{member_user:user_id}::text),
        OLD.{member_event:event_id}::text, 'DONE');
    RETURN NULL;
END
$$;

CREATE FUNCTION bongsu_memberships_ended() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO {outbox_events} (event_type, payload, target_event_id, status)
    SELECT 'system.removed', json_build_object('userId', {member_user:user_id}::text), {member_event:event_id}::text, 'DONE'
    FROM {memberships} WHERE {member_status:status} = 'ACCEPTED';
    RETURN NULL;
END
$$;

-- A session's own temporary tables are looked at last, so that nobody takes the place of the tables that are meant.
DO $$
DECLARE
    name text;
    path text := (SELECT string_agg(quote_ident(schema), ', ') FROM unnest(current_schemas(false)) AS schema) || ', pg_temp';
BEGIN
    FOREACH name IN ARRAY ARRAY['bongsu_membership_ended', 'bongsu_memberships_ended'] LOOP
        EXECUTE format('ALTER FUNCTION %I() SET search_path = %s', name, path);
    END LOOP;
END
$$;

CREATE OR REPLACE TRIGGER bongsu_membership_changed AFTER UPDATE ON {memberships} FOR EACH ROW
WHEN (OLD.{member_status:status} = 'ACCEPTED'
    AND (NEW.{member_status:status} IS DISTINCT FROM 'ACCEPTED'
        OR NEW.{member_event:event_id} IS DISTINCT FROM OLD.{member_event:event_id}
        OR NEW.{member_user:user_id} IS DISTINCT FROM OLD.{member_user:user_id}))
EXECUTE FUNCTION bongsu_membership_ended();

CREATE OR REPLACE TRIGGER bongsu_membership_deleted AFTER DELETE ON {memberships} FOR EACH ROW
WHEN (OLD.{member_status:status} = 'ACCEPTED')
EXECUTE FUNCTION bongsu_membership_ended();

CREATE OR REPLACE TRIGGER bongsu_memberships_emptied BEFORE TRUNCATE ON {memberships} FOR EACH STATEMENT
EXECUTE FUNCTION bongsu_memberships_ended();
