UPDATE bongsu_inbox SET read_at = :now
WHERE person_id = :person AND read_at IS NULL AND deleted_at IS NULL AND seq IN (:seqs[number])
