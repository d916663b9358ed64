-- Columns: the status of the membership; whether a membership or a row names the event; whether the event has a
-- system.removed row that the tail has not passed. Lengths are compared, too, because text comparison ignores trailing
-- blanks in some collations.
SELECT (SELECT {member_status:status} FROM {memberships}
        WHERE {member_event:event_id} = :event AND {member_user:user_id} = :person
            AND OCTET_LENGTH({member_event:event_id}) = OCTET_LENGTH(:event)
            AND OCTET_LENGTH({member_user:user_id}) = OCTET_LENGTH(:person)),
       CASE WHEN EXISTS (SELECT 1 FROM {memberships} WHERE {member_event:event_id} = :event
                              AND OCTET_LENGTH({member_event:event_id}) = OCTET_LENGTH(:event))
              OR EXISTS (SELECT 1 FROM {outbox_events} WHERE target_event_id = :event
                              AND OCTET_LENGTH(target_event_id) = OCTET_LENGTH(:event)) THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position IS NULL AND event_type = 'system.removed')
              OR EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position > :reached AND event_type = 'system.removed')
            THEN 1 ELSE 0 END
