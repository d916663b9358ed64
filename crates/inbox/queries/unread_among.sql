SELECT seq FROM bongsu_inbox
WHERE person_id = :person AND read_at IS NULL AND deleted_at IS NULL AND seq IN (:seqs[number])
