INSERT INTO bongsu_inbox_settings (person_id, body) VALUES (:person, :body)
ON CONFLICT (person_id) DO UPDATE SET body = excluded.body
