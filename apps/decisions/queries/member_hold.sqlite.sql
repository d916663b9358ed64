SELECT status FROM memberships WHERE event_id = :target AND user_id = :person
