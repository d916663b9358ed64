INSERT INTO {memberships} ({member_event:event_id}, {member_user:user_id}, {member_status:status})
VALUES (:target, :person, :status)
ON CONFLICT ({member_event:event_id}, {member_user:user_id})
DO UPDATE SET {member_status:status} = excluded.{member_status:status}
