DELETE FROM bongsu_inbox
WHERE (person_id, seq) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:entries))
