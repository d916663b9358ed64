-- Records the current head with the time, unless the position is recorded already.
INSERT INTO bongsu_outbox_times (position, at)
SELECT head.position, :now FROM bongsu_outbox_head head WHERE one = 1
ON DUPLICATE KEY UPDATE bongsu_outbox_times.position = bongsu_outbox_times.position
