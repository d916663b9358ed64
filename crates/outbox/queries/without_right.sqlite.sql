-- Who follows an event without an accepted membership.
SELECT json_extract(listed.value, '$[0]')
FROM json_each(:followers) AS listed
LEFT JOIN memberships ON memberships.event_id = json_extract(listed.value, '$[1]')
    AND memberships.user_id = json_extract(listed.value, '$[2]')
WHERE memberships.status IS NOT 'ACCEPTED'
