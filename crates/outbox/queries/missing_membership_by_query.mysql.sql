-- The result of missing_membership, with OUTBOX_MEMBERSHIP_QUERY instead of the membership table.
SELECT listed.number
FROM JSON_TABLE(:followers, '$[*]' COLUMNS (
    number BIGINT PATH '$[0]',
    event  VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]',
    since  BIGINT PATH '$[3]')) AS listed
WHERE NOT EXISTS ({listed_membership_query:SELECT 1 WHERE 1 = 0})
    AND NOT EXISTS (SELECT 1 FROM {outbox_events}
                    WHERE target_event_id = listed.event AND (position > listed.since OR position IS NULL)
                        AND event_type = 'system.removed' AND INSTR(payload, CONCAT('"', listed.person, '"')) > 0)
