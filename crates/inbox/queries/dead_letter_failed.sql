UPDATE bongsu_inbox_dead_letters SET attempts = attempts + 1, reason = :reason WHERE id = :id
