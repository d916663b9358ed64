-- Keeps the newest record that is old enough, and all newer ones.
DELETE FROM bongsu_outbox_times WHERE position < :position
