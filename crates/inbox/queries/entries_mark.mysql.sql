UPDATE bongsu_inbox
JOIN JSON_TABLE(:marks, '$[*]' COLUMNS (marked BIGINT PATH '$[0]', at BIGINT PATH '$[1]')) AS listed
    ON bongsu_inbox.seq = listed.marked
SET read_at = listed.at
WHERE person_id = :person AND read_at IS NULL
