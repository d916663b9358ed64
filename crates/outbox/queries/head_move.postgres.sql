-- Whoever listens hears of it when it is committed, once, however many rows there were.
UPDATE bongsu_outbox_head SET position = :position WHERE one = 1 RETURNING pg_notify('bongsu_outbox', '')
