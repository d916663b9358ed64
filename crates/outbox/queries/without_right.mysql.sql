-- Who follows an event without an accepted membership. Blanks at an end count: text is compared without them here.
SELECT listed.number
FROM JSON_TABLE(:followers, '$[*]' COLUMNS (
    number BIGINT PATH '$[0]',
    event  VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[1]',
    person VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[2]')) AS listed
LEFT JOIN memberships ON memberships.event_id = listed.event AND memberships.user_id = listed.person
    AND OCTET_LENGTH(memberships.event_id) = OCTET_LENGTH(listed.event)
    AND OCTET_LENGTH(memberships.user_id) = OCTET_LENGTH(listed.person)
WHERE NOT BINARY memberships.status <=> BINARY 'ACCEPTED'
