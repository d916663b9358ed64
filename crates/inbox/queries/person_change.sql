UPDATE bongsu_people SET unread = unread - :read, version = version + :told WHERE person_id = :person
