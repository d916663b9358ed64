INSERT INTO bongsu_outbox_redriven (id)
SELECT value FROM (:ids[number]) AS listed WHERE true
ON CONFLICT DO NOTHING
