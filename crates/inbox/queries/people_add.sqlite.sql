INSERT INTO bongsu_people (person_id, last_seq, unread, version)
SELECT value, 0, 0, 0 FROM json_each(:people) WHERE true
ON CONFLICT DO NOTHING
