INSERT INTO bongsu_outbox_again (position, id) VALUES (:position, :largest)
ON DUPLICATE KEY UPDATE bongsu_outbox_again.id = bongsu_outbox_again.id
