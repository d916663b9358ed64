UPDATE bongsu_people SET unread = unread - :read, version = version + :versions WHERE person_id = :person
