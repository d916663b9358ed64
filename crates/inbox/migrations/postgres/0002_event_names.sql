-- Event ids of rooms and of services are two name spaces. A type with a dot in it is that of a room's event, so notices
-- that are there belong to one of the two already, and so do those of a hub of an earlier version that still runs.

ALTER TABLE bongsu_notices
    ADD COLUMN of_room SMALLINT NOT NULL GENERATED ALWAYS AS (CASE WHEN strpos(type, '.') > 0 THEN 1 ELSE 0 END) STORED,
    DROP CONSTRAINT bongsu_notices_event_id_key,
    ADD CONSTRAINT bongsu_notices_once UNIQUE (event_id, of_room);
