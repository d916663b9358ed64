DELETE FROM bongsu_work WHERE kind = :kind AND done_at < :before ORDER BY done_at LIMIT :limit
