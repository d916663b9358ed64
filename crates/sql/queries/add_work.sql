INSERT INTO bongsu_work (kind, work_key, body, not_before, attempts, claimed_until, created_at)
VALUES (:kind, :key, :body, :not_before, 0, 0, :now)
