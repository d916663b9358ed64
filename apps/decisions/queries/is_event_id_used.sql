-- Whether another program has memberships or outbox rows with this event id.
SELECT CASE WHEN EXISTS (SELECT 1 FROM {memberships} WHERE {member_event:event_id} = :target)
              OR EXISTS (SELECT 1 FROM {outbox_events} WHERE target_event_id = :target) THEN 1 ELSE 0 END
