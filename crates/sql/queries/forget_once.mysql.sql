DELETE FROM bongsu_once WHERE scope = :scope AND at < :before ORDER BY at LIMIT :limit
