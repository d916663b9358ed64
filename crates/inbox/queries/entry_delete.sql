UPDATE bongsu_inbox SET deleted_at = :now WHERE person_id = :person AND seq = :seq AND deleted_at IS NULL
