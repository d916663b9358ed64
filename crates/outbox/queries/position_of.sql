-- Where a row stands, or stood that was the last of its target to go: whoever has it has missed nothing. Not if its id may have been
-- another row's before: who names it may mean that one.
SELECT known.position
FROM (
    SELECT position FROM {outbox_events} WHERE id = :id AND target_event_id = :target AND position IS NOT NULL
    UNION ALL
    SELECT position FROM bongsu_outbox_gone WHERE target_event_id = :target AND id = :id
) known
WHERE NOT EXISTS (SELECT 1 FROM bongsu_outbox_again again WHERE again.position < known.position AND again.id >= :id)
