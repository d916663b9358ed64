INSERT INTO bongsu_inbox_settings (person_id, body) VALUES (:person, :body)
ON DUPLICATE KEY UPDATE body = VALUES(body)
