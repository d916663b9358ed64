UPDATE bongsu_people SET unread = unread - listed.read, version = version + 1
FROM (SELECT value ->> 0 AS person, value ->> 1 AS read FROM json_each(:counts)) AS listed
WHERE person_id = listed.person
