-- Ordered by person id: every transaction that locks several person rows locks them in this order, which avoids
-- deadlocks.
SELECT person_id, last_seq, unread, version FROM bongsu_people
WHERE person_id IN (:people[text])
ORDER BY person_id
FOR UPDATE
