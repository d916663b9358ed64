-- As many versions as marks may have waited for what goes.
UPDATE bongsu_people SET unread = unread - listed.read, version = version + 1 + listed.read
FROM (SELECT value ->> 0 AS person, value ->> 1 AS read FROM json_each(:counts)) AS listed
WHERE person_id = listed.person
