-- Changes no row when the claim has ended, because another worker may have claimed the item.
UPDATE bongsu_work
SET done_at = :now
WHERE id = :id AND claimed_by = :worker AND attempts = :attempt AND claimed_until > :now AND done_at IS NULL
