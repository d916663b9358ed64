-- Where a row stands, or stood that was the last of its target to go: whoever has it has missed nothing.
SELECT position FROM outbox_events WHERE id = :id AND target_event_id = :target AND position IS NOT NULL
UNION ALL
SELECT position FROM bongsu_outbox_gone WHERE target_event_id = :target AND id = :id
