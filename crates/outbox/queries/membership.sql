-- Columns: the status of the membership; whether a membership or a row names the event; whether the event has a
-- system.removed row that the tail has not passed.
SELECT (SELECT {member_status:status} FROM {memberships}
        WHERE {member_event:event_id} = :event AND {member_user:user_id} = :person),
       CASE WHEN EXISTS (SELECT 1 FROM {memberships} WHERE {member_event:event_id} = :event)
              OR EXISTS (SELECT 1 FROM {outbox_events} WHERE target_event_id = :event) THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position IS NULL AND event_type = 'system.removed')
              OR EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position > :reached AND event_type = 'system.removed')
            THEN 1 ELSE 0 END
