DELETE FROM bongsu_outbox_failures WHERE id IN (:ids[number])
