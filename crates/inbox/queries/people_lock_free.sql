-- Skips rows that another transaction has locked: retention handles those persons in a later batch. It does
-- not wait for the lock, so that no other transaction queues behind it.
SELECT person_id FROM bongsu_people
WHERE person_id IN (:people[text])
ORDER BY person_id
FOR UPDATE SKIP LOCKED
