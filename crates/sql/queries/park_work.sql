UPDATE bongsu_work
SET not_before = :until, claimed_until = 0, reason = :reason
WHERE id = :id AND claimed_by = :worker AND attempts = :attempt AND claimed_until > :now AND done_at IS NULL
