INSERT INTO {memberships} ({member_event:event_id}, {member_user:user_id}, {member_status:status})
VALUES (:target, :person, :status)
ON DUPLICATE KEY UPDATE {member_status:status} = VALUES({member_status:status})
