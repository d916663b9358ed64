-- The votes of current members for a proposal, and the number of members, in one snapshot.
SELECT (SELECT count(*)
        FROM decision_votes vote
        JOIN {memberships} member ON member.{member_event:event_id} = :target AND member.{member_user:user_id} = vote.user_id
        WHERE vote.proposal_id = :proposal AND member.{member_status:status} = 'ACCEPTED'),
       (SELECT count(*) FROM {memberships} WHERE {member_event:event_id} = :target AND {member_status:status} = 'ACCEPTED')
