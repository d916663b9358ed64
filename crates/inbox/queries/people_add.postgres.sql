-- In order, as everybody does who needs several: nobody waits for one who waits for them.
INSERT INTO bongsu_people (person_id, last_seq, unread, version)
SELECT person, 0, 0, 0 FROM json_array_elements_text((:people)::json) AS listed (person)
ORDER BY person COLLATE "C"
ON CONFLICT DO NOTHING
