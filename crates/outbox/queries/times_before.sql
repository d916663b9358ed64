-- The last position that is recorded with this time or an earlier one.
SELECT MAX(position) FROM bongsu_outbox_times WHERE at <= :before
