-- Only votes of people who are members now are counted.
SELECT proposal.id, proposal.proposal_type, proposal.status, proposal.content, proposal.proposer_id,
       proposal.created_at, proposal.decided_at,
       (SELECT count(*)
        FROM decision_votes vote
        JOIN {memberships} member ON member.{member_event:event_id} = :target AND member.{member_user:user_id} = vote.user_id
        WHERE vote.proposal_id = proposal.id AND member.{member_status:status} = 'ACCEPTED'),
       CASE WHEN EXISTS (SELECT 1 FROM decision_votes own
                         WHERE own.proposal_id = proposal.id AND own.user_id = :person) THEN 1 ELSE 0 END
FROM decision_proposals proposal
WHERE proposal.event_id = :event AND proposal.id < :before
ORDER BY proposal.id DESC LIMIT :limit
