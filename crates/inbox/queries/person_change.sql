UPDATE bongsu_people SET unread = unread - :read, version = version + 1 WHERE person_id = :person
