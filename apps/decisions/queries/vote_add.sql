INSERT INTO decision_votes (proposal_id, user_id, created_at) VALUES (:proposal, :person, :now)
