DELETE FROM bongsu_outbox_redriven WHERE id IN (:ids[number])
