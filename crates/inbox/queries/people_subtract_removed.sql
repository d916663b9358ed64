-- The version grows by one and by the number of removed unread entries: a buffered mark on each of them may already
-- have been counted as one version.
UPDATE bongsu_people SET unread = unread - listed.removed, version = version + 1 + listed.removed
FROM (SELECT value ->> 0 AS person, CAST(value ->> 1 AS BIGINT) AS removed FROM (:counts[row]) AS entry) AS listed
WHERE person_id = listed.person
