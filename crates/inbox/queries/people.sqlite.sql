SELECT person_id, last_seq, unread, version FROM bongsu_people
WHERE person_id IN (SELECT value FROM json_each(:people))
ORDER BY person_id
