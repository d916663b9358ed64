INSERT INTO bongsu_inbox_dead_letters (subject, type, record, attempts, reason, created_at)
VALUES (:subject, :type, :record, :attempts, :reason, :created_at)
