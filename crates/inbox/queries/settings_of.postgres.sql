SELECT person_id, body FROM bongsu_inbox_settings
WHERE person_id IN (SELECT json_array_elements_text((:people)::json))
