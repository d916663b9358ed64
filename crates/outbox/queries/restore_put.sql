INSERT INTO bongsu_outbox_again (position, id) VALUES (:position, :largest) ON CONFLICT DO NOTHING
