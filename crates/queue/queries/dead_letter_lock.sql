SELECT id FROM bongsu_queue_dead_letters WHERE queue = :queue AND id = :id
FOR UPDATE
