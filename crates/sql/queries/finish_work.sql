-- Only by the one that has it now: a claim that has ended may be another worker's.
UPDATE bongsu_work
SET done_at = :now
WHERE id = :id AND claimed_by = :worker AND attempts = :attempt AND claimed_until > :now AND done_at IS NULL
