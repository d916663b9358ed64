-- What had its position at that time.
SELECT MAX(position) FROM bongsu_outbox_times WHERE at <= :before
