-- Locks the membership. A transaction that ends the membership waits, so a change precedes that end or is refused.
SELECT {member_status:status} FROM {memberships} WHERE {member_event:event_id} = :target AND {member_user:user_id} = :person FOR UPDATE
