-- The columns of membership.sql, with the query of OUTBOX_MEMBERSHIP_QUERY. Only a row can name the event.
SELECT CASE WHEN EXISTS ({membership_query:SELECT 1 WHERE :event_id = :user_id}) THEN 'ACCEPTED' END,
       CASE WHEN EXISTS (SELECT 1 FROM {outbox_events} WHERE target_event_id = :event
                              AND OCTET_LENGTH(target_event_id) = OCTET_LENGTH(:event)) THEN 1 ELSE 0 END,
       CASE WHEN EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position IS NULL AND event_type = 'system.removed')
              OR EXISTS (SELECT 1 FROM {outbox_events}
                         WHERE target_event_id = :event AND position > :reached AND event_type = 'system.removed')
            THEN 1 ELSE 0 END
