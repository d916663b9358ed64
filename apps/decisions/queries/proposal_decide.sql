UPDATE decision_proposals SET status = :status, decided_at = :now WHERE id = :proposal
