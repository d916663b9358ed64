SELECT fence FROM bongsu_queue_consumers WHERE queue = :queue
FOR UPDATE
