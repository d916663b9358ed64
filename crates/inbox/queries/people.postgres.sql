SELECT person_id, last_seq, unread, version FROM bongsu_people
WHERE person_id IN (SELECT json_array_elements_text((:people)::json))
ORDER BY person_id
