-- The largest id that anybody may have been told: of rows that are there, that were too old, and that were lost before.
SELECT MAX(known.id)
FROM (
    SELECT MAX(id) AS id FROM {outbox_events}
    UNION ALL
    SELECT MAX(id) FROM bongsu_outbox_gone
    UNION ALL
    SELECT MAX(id) FROM bongsu_outbox_again
) known
