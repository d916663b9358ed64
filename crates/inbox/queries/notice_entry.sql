SELECT seq, created_at, read_at, deleted_at FROM bongsu_inbox WHERE notice_id = :notice AND person_id = :person
