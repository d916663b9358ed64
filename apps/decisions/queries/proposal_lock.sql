-- Locks the proposal, so that votes, decisions and comments on it run one after the other.
SELECT proposal_type, status FROM decision_proposals WHERE id = :proposal AND event_id = :event FOR UPDATE
