-- The listed streams whose person has no accepted membership, and that have no system.removed row of the person ahead
-- of them. Lengths are compared, too, because text comparison ignores trailing blanks in some collations.
SELECT listed.number
FROM JSON_TABLE(:followers, '$[*]' COLUMNS (
    number BIGINT PATH '$[0]',
    event  VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]',
    since  BIGINT PATH '$[3]')) AS listed
LEFT JOIN {memberships} ON {memberships}.{member_event:event_id} = listed.event AND {memberships}.{member_user:user_id} = listed.person
    AND OCTET_LENGTH({memberships}.{member_event:event_id}) = OCTET_LENGTH(listed.event)
    AND OCTET_LENGTH({memberships}.{member_user:user_id}) = OCTET_LENGTH(listed.person)
WHERE NOT (BINARY {memberships}.{member_status:status} <=> BINARY 'ACCEPTED')
    AND NOT EXISTS (SELECT 1 FROM {outbox_events}
                    WHERE target_event_id = listed.event AND (position > listed.since OR position IS NULL)
                        AND event_type = 'system.removed' AND INSTR(payload, CONCAT('"', listed.person, '"')) > 0)
