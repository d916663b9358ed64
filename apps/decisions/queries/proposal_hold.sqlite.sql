SELECT proposal_type, status FROM decision_proposals WHERE id = :proposal AND event_id = :event
