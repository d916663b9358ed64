SELECT {member_status:status} FROM {memberships} WHERE {member_event:event_id} = :target AND {member_user:user_id} = :person
