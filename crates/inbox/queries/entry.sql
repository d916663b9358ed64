SELECT entry.seq, entry.read_at FROM bongsu_inbox entry
WHERE entry.person_id = :person AND entry.seq = :seq AND entry.deleted_at IS NULL
