DELETE FROM bongsu_inbox_dead_letters WHERE id = :id
