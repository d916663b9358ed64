SELECT person_id FROM bongsu_people
WHERE person_id IN (SELECT value FROM json_each(:people))
ORDER BY person_id
