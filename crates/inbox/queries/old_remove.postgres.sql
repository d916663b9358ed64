DELETE FROM bongsu_inbox
WHERE (person_id, seq) IN (SELECT entry ->> 0, (entry ->> 1)::bigint FROM json_array_elements((:entries)::json) AS entry)
