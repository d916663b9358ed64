SELECT last_seq, unread, version FROM bongsu_people WHERE person_id = :person FOR UPDATE
