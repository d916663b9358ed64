INSERT INTO memberships (event_id, user_id, status) VALUES (:target, :person, :status)
ON DUPLICATE KEY UPDATE status = VALUES(status)
