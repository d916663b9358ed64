-- Those whom nobody else has: who may as well come later waits for nobody, and has nobody wait.
SELECT person_id FROM bongsu_people
WHERE person_id IN (:people[text])
ORDER BY person_id
FOR UPDATE SKIP LOCKED
