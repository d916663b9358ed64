-- The last position that was given, and which row has a position now that somebody remembers.
SELECT head.position, known.id, known.created_at
FROM bongsu_outbox_head head
LEFT JOIN outbox_events known ON known.id = (SELECT MIN(twin.id) FROM outbox_events twin WHERE twin.position = :remembered)
WHERE head.one = 1
