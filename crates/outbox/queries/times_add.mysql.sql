-- Records the head with the current time, unless this position is recorded already.
INSERT INTO bongsu_outbox_times (position, at)
SELECT head.position, :now FROM bongsu_outbox_head head WHERE one = 1
ON DUPLICATE KEY UPDATE bongsu_outbox_times.position = bongsu_outbox_times.position
