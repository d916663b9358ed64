-- The last position that was given; the row that now has the remembered position of the reader; and how many restores
-- of the database are recorded.
SELECT head.position, known.id, known.created_at, (SELECT COUNT(*) FROM bongsu_outbox_again)
FROM bongsu_outbox_head head
LEFT JOIN {outbox_events} known ON known.id = (SELECT MIN(twin.id) FROM {outbox_events} twin WHERE twin.position = :remembered)
WHERE head.one = 1
