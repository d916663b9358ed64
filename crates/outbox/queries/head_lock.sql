SELECT position FROM bongsu_outbox_head WHERE one = 1 FOR UPDATE
