SELECT COUNT(*) FROM bongsu_queue_dead_letters WHERE queue = :queue
