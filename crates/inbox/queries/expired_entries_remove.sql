DELETE FROM bongsu_inbox
WHERE (person_id, seq) IN (SELECT value ->> 0, CAST(value ->> 1 AS BIGINT) FROM (:entries[row]) AS entry)
