-- Records the head with the current time, unless this position is recorded already.
INSERT INTO bongsu_outbox_times (position, at)
SELECT position, CAST(:now AS BIGINT) FROM bongsu_outbox_head WHERE one = 1
ON CONFLICT DO NOTHING
