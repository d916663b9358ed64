UPDATE bongsu_inbox SET read_at = listed.at
FROM (SELECT (mark ->> 0)::bigint AS seq, (mark ->> 1)::bigint AS at
      FROM json_array_elements((:marks)::json) AS mark) AS listed
WHERE person_id = :person AND bongsu_inbox.seq = listed.seq AND read_at IS NULL
