UPDATE bongsu_queue_messages SET ready_at = NULL, waiting_key = NULL
WHERE id IN (:ids[number])
