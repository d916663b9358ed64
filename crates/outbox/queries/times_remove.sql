-- Keeps the record of this position, and all newer ones.
DELETE FROM bongsu_outbox_times WHERE position < :position
