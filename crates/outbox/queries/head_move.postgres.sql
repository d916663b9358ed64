-- Tails receive the notification after the commit, once for all rows of the transaction.
UPDATE bongsu_outbox_head SET position = :position WHERE one = 1 RETURNING pg_notify('bongsu_outbox', '')
