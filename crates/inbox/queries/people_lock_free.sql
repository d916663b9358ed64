-- Skips rows that another transaction has locked: retention handles those persons in a later step, and neither waits
-- for the lock nor queues in front of others.
SELECT person_id FROM bongsu_people
WHERE person_id IN (:people[text])
ORDER BY person_id
FOR UPDATE SKIP LOCKED
