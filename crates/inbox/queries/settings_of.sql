SELECT person_id, body FROM bongsu_inbox_settings
WHERE person_id IN (:people[text])
