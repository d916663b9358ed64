-- Votes, decisions and comments come one after the other.
SELECT proposal_type, status FROM decision_proposals WHERE id = :proposal AND event_id = :event FOR UPDATE
