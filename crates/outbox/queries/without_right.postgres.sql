-- Who follows an event without an accepted membership.
SELECT (listed.one ->> 0)::bigint
FROM json_array_elements((:followers)::json) AS listed (one)
LEFT JOIN memberships ON memberships.event_id = listed.one ->> 1 AND memberships.user_id = listed.one ->> 2
WHERE memberships.status IS DISTINCT FROM 'ACCEPTED'
