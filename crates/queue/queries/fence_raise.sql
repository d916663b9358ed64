INSERT INTO bongsu_queue_consumers (queue, fence) VALUES (:queue, 1)
ON CONFLICT (queue) DO UPDATE SET fence = bongsu_queue_consumers.fence + 1
