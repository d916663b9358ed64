-- Columns: all entries, unread, read, deleted. A deleted entry is not counted as read or unread.
SELECT COUNT(*),
    COUNT(CASE WHEN deleted_at IS NULL AND read_at IS NULL THEN 1 END),
    COUNT(CASE WHEN deleted_at IS NULL AND read_at IS NOT NULL THEN 1 END),
    COUNT(CASE WHEN deleted_at IS NOT NULL THEN 1 END)
FROM bongsu_inbox WHERE notice_id = :notice
