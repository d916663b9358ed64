-- A membership that ends meanwhile waits: what somebody did came before it, or is refused.
SELECT {member_status:status} FROM {memberships} WHERE {member_event:event_id} = :target AND {member_user:user_id} = :person FOR UPDATE
