-- The last position that was given, and which row has a position now that somebody remembers.
SELECT position, (SELECT id FROM outbox_events WHERE outbox_events.position = :remembered)
FROM bongsu_outbox_head
WHERE one = 1
