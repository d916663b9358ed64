UPDATE bongsu_outbox_head SET position = :position WHERE one = 1
