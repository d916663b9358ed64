-- The largest id that a client may have received: of the rows, of those that retention removed, and of the ids recorded
-- with restores.
SELECT MAX(known.id)
FROM (
    SELECT MAX(id) AS id FROM {outbox_events}
    UNION ALL
    SELECT MAX(id) FROM bongsu_outbox_gone
    UNION ALL
    SELECT MAX(id) FROM bongsu_outbox_again
) known
