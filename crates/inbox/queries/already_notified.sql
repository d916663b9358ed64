SELECT person_id FROM bongsu_inbox
WHERE notice_id = :notice AND person_id IN (:people[text])
