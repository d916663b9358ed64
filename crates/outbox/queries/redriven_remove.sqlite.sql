DELETE FROM bongsu_outbox_redriven WHERE id IN (SELECT value FROM json_each(:ids))
