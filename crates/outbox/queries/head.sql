-- The last position that was given, which row has a position now that somebody remembers, and how often it was noted that the
-- database was restored.
SELECT head.position, known.id, known.created_at, (SELECT COUNT(*) FROM bongsu_outbox_again)
FROM bongsu_outbox_head head
LEFT JOIN {outbox_events} known ON known.id = (SELECT MIN(twin.id) FROM {outbox_events} twin WHERE twin.position = :remembered)
WHERE head.one = 1
