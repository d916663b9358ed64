INSERT INTO memberships (event_id, user_id, status) VALUES (:target, :person, :status)
ON CONFLICT (event_id, user_id) DO UPDATE SET status = excluded.status
