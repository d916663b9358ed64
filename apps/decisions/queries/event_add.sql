INSERT INTO decision_events (title, auto_approve_percent, creator_id, created_at)
VALUES (:title, :percent, :creator, :now)
