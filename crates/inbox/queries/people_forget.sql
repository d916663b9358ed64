-- As many versions as marks may have waited for what goes.
UPDATE bongsu_people SET unread = unread - listed.gone, version = version + 1 + listed.gone
FROM (SELECT value ->> 0 AS person, CAST(value ->> 1 AS BIGINT) AS gone FROM (:counts[row]) AS entry) AS listed
WHERE person_id = listed.person
