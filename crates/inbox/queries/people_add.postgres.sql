-- Ordered by person id: every transaction that locks several person rows locks them in this order, which avoids
-- deadlocks.
INSERT INTO bongsu_people (person_id, last_seq, unread, version)
SELECT person, 0, 0, 0 FROM json_array_elements_text((:people)::json) AS listed (person)
ORDER BY person COLLATE "C"
ON CONFLICT DO NOTHING
