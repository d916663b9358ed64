-- The listed streams whose person has no accepted membership, and that have no system.removed row of the person ahead
-- of them.
SELECT json_extract(listed.value, '$[0]')
FROM json_each(:followers) AS listed
LEFT JOIN {memberships} ON {memberships}.{member_event:event_id} = json_extract(listed.value, '$[1]')
    AND {memberships}.{member_user:user_id} = json_extract(listed.value, '$[2]')
WHERE {memberships}.{member_status:status} IS NOT 'ACCEPTED'
    AND NOT EXISTS (SELECT 1 FROM {outbox_events}
                    WHERE target_event_id = json_extract(listed.value, '$[1]')
                        AND (position > json_extract(listed.value, '$[3]') OR position IS NULL)
                        AND event_type = 'system.removed'
                        AND instr(payload, '"' || json_extract(listed.value, '$[2]') || '"') > 0)
