INSERT INTO bongsu_inbox (person_id, seq, notice_id, created_at)
SELECT person_id, last_seq + 1, :notice, :now FROM bongsu_people
WHERE person_id IN (:people[text])
