INSERT INTO decision_comments (event_id, criterion_id, author_id, content, created_at)
VALUES (:event, :criterion, :person, :content, :now)
