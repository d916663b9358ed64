-- Locks the membership. A transaction that ends it waits, so the caller's change precedes that end or is refused.
SELECT {member_status:status} FROM {memberships} WHERE {member_event:event_id} = :target AND {member_user:user_id} = :person FOR UPDATE
