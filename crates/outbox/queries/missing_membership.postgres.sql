-- The listed streams whose person has no accepted membership, and that have no system.removed row of the person ahead
-- of them.
SELECT (listed.one ->> 0)::bigint
FROM json_array_elements((:followers)::json) AS listed (one)
LEFT JOIN {memberships} ON {memberships}.{member_event:event_id} = listed.one ->> 1 AND {memberships}.{member_user:user_id} = listed.one ->> 2
WHERE {memberships}.{member_status:status} IS DISTINCT FROM 'ACCEPTED'
    AND NOT EXISTS (SELECT 1 FROM {outbox_events}
                    WHERE target_event_id = listed.one ->> 1
                        AND (position > (listed.one ->> 3)::bigint OR position IS NULL)
                        AND event_type = 'system.removed'
                        AND strpos(payload::text, '"' || (listed.one ->> 2) || '"') > 0)
