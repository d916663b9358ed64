SELECT id, author_id, content, created_at FROM decision_comments
WHERE criterion_id = :criterion AND id < :before
ORDER BY id DESC LIMIT :limit
