-- A position that the sequencer did not assign counts as no position. The indexes are named, because SQLite may
-- otherwise scan an index of all rows.
SELECT 1 WHERE EXISTS (SELECT 1 FROM {outbox_events} INDEXED BY {outbox_events_unsequenced} WHERE position IS NULL)
    OR EXISTS (SELECT 1 FROM {outbox_events} INDEXED BY {outbox_events_order} WHERE position > (SELECT head.position FROM bongsu_outbox_head head WHERE head.one = 1))
    OR EXISTS (SELECT 1 FROM {outbox_events} INDEXED BY {outbox_events_order} WHERE position <= 0)
