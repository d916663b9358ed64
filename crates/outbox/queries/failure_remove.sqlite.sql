DELETE FROM bongsu_outbox_failures WHERE id IN (SELECT value FROM json_each(:ids))
