-- The newest of those that are old enough stays.
DELETE FROM bongsu_outbox_times WHERE position < :position
