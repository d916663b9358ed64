UPDATE bongsu_people SET last_seq = last_seq + 1, unread = unread + 1, version = version + 1
WHERE person_id IN (:people[text])
