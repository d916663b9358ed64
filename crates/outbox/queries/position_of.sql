-- The position of a row, or of the last row of the target that retention removed: a client with the id of that row has
-- missed none. No position if the id may have belonged to another row before a restore, because the client may mean
-- that other row.
SELECT known.position
FROM (
    SELECT position FROM {outbox_events} WHERE id = :id AND target_event_id = :target AND position IS NOT NULL
    UNION ALL
    SELECT position FROM bongsu_outbox_gone WHERE target_event_id = :target AND id = :id
) known
WHERE NOT EXISTS (SELECT 1 FROM bongsu_outbox_again again WHERE again.position < known.position AND again.id >= :id)
