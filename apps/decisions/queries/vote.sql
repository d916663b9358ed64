SELECT 1 FROM decision_votes WHERE proposal_id = :proposal AND user_id = :person
