-- As many versions as marks may have waited for what goes.
UPDATE bongsu_people SET unread = unread - listed.read, version = version + 1 + listed.read
FROM (SELECT entry ->> 0 AS person, (entry ->> 1)::bigint AS read
      FROM json_array_elements((:counts)::json) AS entry) AS listed
WHERE person_id = listed.person
