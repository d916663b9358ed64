DELETE FROM bongsu_queue_messages
WHERE id IN (:ids[number])
