-- In order, as everybody does who needs several: nobody waits for one who waits for them.
SELECT person_id, last_seq, unread, version FROM bongsu_people
WHERE person_id IN (:people[text])
ORDER BY person_id
FOR UPDATE
