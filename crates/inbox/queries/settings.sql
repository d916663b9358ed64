SELECT body FROM bongsu_inbox_settings WHERE person_id = :person
