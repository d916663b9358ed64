DELETE FROM bongsu_work
WHERE id IN (SELECT id FROM bongsu_work WHERE kind = :kind AND done_at < :before ORDER BY done_at LIMIT :limit)
