INSERT INTO bongsu_outbox_redriven (id)
SELECT value FROM json_each(:ids) WHERE true
ON CONFLICT DO NOTHING
