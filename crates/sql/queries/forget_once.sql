DELETE FROM bongsu_once
WHERE scope = :scope
  AND once_key IN (
      SELECT once_key FROM bongsu_once WHERE scope = :scope AND at < :before ORDER BY at LIMIT :limit
  )
