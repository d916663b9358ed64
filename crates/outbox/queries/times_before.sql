-- The last position that had been given at that time.
SELECT MAX(position) FROM bongsu_outbox_times WHERE at <= :before
