-- The result of missing_membership, with OUTBOX_MEMBERSHIP_QUERY instead of the membership table.
SELECT (listed.one ->> 0)::bigint
FROM json_array_elements((:followers)::json) AS listed (one)
WHERE NOT EXISTS ({listed_membership_query:SELECT 1 WHERE 1 = 0})
    AND NOT EXISTS (SELECT 1 FROM {outbox_events}
                    WHERE target_event_id = listed.one ->> 1
                        AND (position > (listed.one ->> 3)::bigint OR position IS NULL)
                        AND event_type = 'system.removed'
                        AND strpos(payload::text, '"' || (listed.one ->> 2) || '"') > 0)
