SELECT notice.id FROM bongsu_notices notice
WHERE notice.created_at < :before
  AND NOT EXISTS (SELECT 1 FROM bongsu_inbox entry WHERE entry.notice_id = notice.id)
ORDER BY notice.created_at LIMIT :limit
