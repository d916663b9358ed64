SELECT MIN(seq) FROM bongsu_inbox WHERE person_id = :person AND seq > :after
