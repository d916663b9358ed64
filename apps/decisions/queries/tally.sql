-- How many votes of members a proposal has, and how many members there are: both as they are at one moment.
SELECT (SELECT count(*)
        FROM decision_votes vote
        JOIN memberships member ON member.event_id = :target AND member.user_id = vote.user_id
        WHERE vote.proposal_id = :proposal AND member.status = 'ACCEPTED'),
       (SELECT count(*) FROM memberships WHERE event_id = :target AND status = 'ACCEPTED')
