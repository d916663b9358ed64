INSERT INTO bongsu_queue_consumers (queue, fence) VALUES (:queue, 1)
ON DUPLICATE KEY UPDATE fence = fence + 1
