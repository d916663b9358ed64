-- The earlier time stays: an entry may have been marked again while its buffered mark could not be read.
UPDATE bongsu_inbox SET read_at = listed.at
FROM (SELECT CAST(value ->> 0 AS BIGINT) AS seq, CAST(value ->> 1 AS BIGINT) AS at FROM (:marks[row]) AS mark) AS listed
WHERE person_id = :person AND bongsu_inbox.seq = listed.seq AND (read_at IS NULL OR read_at > listed.at)
