//! Votes for proposals. Each person has one vote, which counts while the person is a member.
//!
//! Votes for one proposal run one after the other, because each locks the proposal's row. The vote that completes the
//! required percentage approves the proposal in the same transaction, so that it is approved once. One query counts
//! votes and members in one snapshot, so that a membership that changes at the same time is in both counts or in
//! neither.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::access::{LockedProposal, lock_membership, lock_proposal};
use crate::approve::apply_decision;
use crate::outbox_events::{ProposalPayload, VOTE_WITHDRAWN, VOTED, record_event};
use crate::{DecisionEvent, Decisions, ProposalType, Result, Status, store};

/// A request to add or withdraw a person's vote.
#[derive(Clone, Debug)]
struct VoteRequest {
    event: Id,
    proposal: Id,
    person: Id,
    now: Millis,
}

/// A proposal after a vote was added or withdrawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoteResult {
    pub proposal: i64,
    pub proposal_type: ProposalType,
    pub status: Status,
    /// Votes of people who are members now.
    pub votes: u64,
    /// The caller has a vote.
    pub has_voted: bool,
}

/// The votes for a proposal and the members of its event.
#[derive(Clone, Copy, Debug)]
struct Tally {
    votes: u64,
    members: u64,
}

impl Tally {
    /// Whether at least one member and at least `percent` of the members have voted for the proposal.
    fn reaches(self, percent: u64) -> bool {
        self.votes > 0 && self.votes.saturating_mul(100) >= percent.saturating_mul(self.members)
    }
}

impl Decisions {
    /// Adds a person's vote. Without effect if the person has voted, even if the proposal has been decided.
    pub async fn vote(&self, event: Id, proposal: Id, person: Id) -> Result<VoteResult> {
        let request = VoteRequest { event, proposal, person, now: self.clock.now() };
        self.records.write(request, vote).await
    }

    /// Withdraws a person's vote. Without effect if the person has not voted.
    pub async fn withdraw(&self, event: Id, proposal: Id, person: Id) -> Result<VoteResult> {
        let request = VoteRequest { event, proposal, person, now: self.clock.now() };
        self.records.write(request, withdraw).await
    }
}

async fn vote(request: &VoteRequest, tx: &mut Transaction<'_>) -> Result<VoteResult> {
    let (event, mut proposal, has_voted) = lock_rows(request, tx).await?;
    if has_voted {
        let Tally { votes, .. } = tally(&event, &proposal, tx).await?;
        return Ok(vote_result(&proposal, votes, true));
    }
    proposal.require_pending()?;
    let arguments = [
        ("proposal", proposal.number.into()),
        ("person", (&request.person).into()),
        ("now", request.now.into()),
    ];
    tx.run(&store::VOTE_ADD, &arguments).await?;
    record_event(tx, &event, VOTED, &ProposalPayload::from(&proposal)).await?;
    let tally = tally(&event, &proposal, tx).await?;
    if tally.reaches(event.auto_approve_percent) {
        apply_decision(tx, &event, &mut proposal, Status::Approved, request.now).await?;
    }
    Ok(vote_result(&proposal, tally.votes, true))
}

async fn withdraw(request: &VoteRequest, tx: &mut Transaction<'_>) -> Result<VoteResult> {
    let (event, proposal, has_voted) = lock_rows(request, tx).await?;
    if has_voted {
        proposal.require_pending()?;
        tx.run(&store::VOTE_REMOVE, &vote_key(&proposal, &request.person)).await?;
        record_event(tx, &event, VOTE_WITHDRAWN, &ProposalPayload::from(&proposal)).await?;
    }
    let Tally { votes, .. } = tally(&event, &proposal, tx).await?;
    Ok(vote_result(&proposal, votes, false))
}

/// Locks the membership and the proposal, and returns whether the person has voted for the proposal.
async fn lock_rows(
    request: &VoteRequest,
    tx: &mut Transaction<'_>,
) -> Result<(DecisionEvent, LockedProposal, bool)> {
    let event = lock_membership(tx, &request.event, &request.person).await?;
    let proposal = lock_proposal(tx, &event, &request.proposal).await?;
    let vote = tx.row(&store::VOTE, &vote_key(&proposal, &request.person)).await?;
    Ok((event, proposal, vote.is_some()))
}

fn vote_key(proposal: &LockedProposal, person: &Id) -> [(&'static str, bongsu_sql::Value); 2] {
    [("proposal", proposal.number.into()), ("person", person.into())]
}

async fn tally(event: &DecisionEvent, proposal: &LockedProposal, tx: &mut Transaction<'_>) -> Result<Tally> {
    let arguments = [("target", (&event.id).into()), ("proposal", proposal.number.into())];
    let row = tx.row(&store::TALLY, &arguments).await?;
    let row = row
        .ok_or_else(|| bongsu_sql::Error::Failed("the query that counts votes returned no row".to_owned()))?;
    Ok(Tally { votes: row.count(0)?, members: row.count(1)? })
}

fn vote_result(proposal: &LockedProposal, votes: u64, has_voted: bool) -> VoteResult {
    let LockedProposal { number, proposal_type, status } = *proposal;
    VoteResult { proposal: number, proposal_type, status, votes, has_voted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_required_percentage_is_compared_without_rounding() {
        let reaches = |votes, members, percent| Tally { votes, members }.reaches(percent);
        assert!(reaches(1, 2, 50) && !reaches(1, 3, 50) && reaches(2, 3, 50));
        assert!(!reaches(1, 3, 34) && reaches(1, 3, 33), "a third is less than 34 and more than 33 percent");
        assert!(reaches(3, 3, 100) && !reaches(2, 3, 100));
        assert!(reaches(1, 100, 1) && !reaches(1, 101, 1));
        assert!(!reaches(0, 0, 50), "without votes nothing is approved");
        assert!(reaches(u64::MAX, u64::MAX, 100));
    }
}
