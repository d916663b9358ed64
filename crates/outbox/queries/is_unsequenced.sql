-- A position that the sequencer did not assign counts as no position.
SELECT 1 WHERE EXISTS (SELECT 1 FROM {outbox_events} WHERE position IS NULL)
    OR EXISTS (SELECT 1 FROM {outbox_events} WHERE position > (SELECT head.position FROM bongsu_outbox_head head WHERE head.one = 1))
    OR EXISTS (SELECT 1 FROM {outbox_events} WHERE position <= 0)
