INSERT INTO decision_proposals (event_id, proposal_type, content, status, proposer_id, created_at)
VALUES (:event, :type, :content, 'PENDING', :person, :now)
