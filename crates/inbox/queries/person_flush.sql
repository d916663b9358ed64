UPDATE bongsu_people SET unread = unread - :read, version = version + :read WHERE person_id = :person
