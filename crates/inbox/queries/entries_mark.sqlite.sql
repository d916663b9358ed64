UPDATE bongsu_inbox SET read_at = listed.at
FROM (SELECT value ->> 0 AS seq, value ->> 1 AS at FROM json_each(:marks)) AS listed
WHERE person_id = :person AND bongsu_inbox.seq = listed.seq AND read_at IS NULL
