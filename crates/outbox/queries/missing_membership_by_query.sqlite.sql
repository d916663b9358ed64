-- The result of missing_membership, with OUTBOX_MEMBERSHIP_QUERY instead of the membership table.
SELECT json_extract(listed.value, '$[0]')
FROM json_each(:followers) AS listed
WHERE NOT EXISTS ({listed_membership_query:SELECT 1 WHERE 1 = 0})
    AND NOT EXISTS (SELECT 1 FROM {outbox_events}
                    WHERE target_event_id = json_extract(listed.value, '$[1]')
                        AND (position > json_extract(listed.value, '$[3]') OR position IS NULL)
                        AND event_type = 'system.removed'
                        AND instr(payload, '"' || json_extract(listed.value, '$[2]') || '"') > 0)
