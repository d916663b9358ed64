SELECT person_id, last_seq, unread, version FROM bongsu_people
WHERE person_id IN (:people[text])
ORDER BY person_id
