SELECT id FROM bongsu_notices WHERE id IN (SELECT value FROM json_each(:ids))
