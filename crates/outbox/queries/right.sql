-- Whether somebody may follow an event, whether there is such an event at all, and whether a right of somebody's ended
-- that streams here do not know of yet.
SELECT (SELECT {member_status:status} FROM {memberships}
        WHERE {member_event:event_id} = :event AND {member_user:user_id} = :person),
       CASE WHEN EXISTS (SELECT 1 FROM {memberships} WHERE {member_event:event_id} = :event)
              OR EXISTS (SELECT 1 FROM {outbox_events} WHERE target_event_id = :event) THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position IS NULL AND event_type = 'system.removed')
              OR EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position > :reached AND event_type = 'system.removed')
            THEN 1 ELSE 0 END
