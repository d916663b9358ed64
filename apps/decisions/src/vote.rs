//! Voting for a proposal, and taking that back. One vote a person, which counts while they are a member.
//!
//! Votes on one proposal come one after the other, because each holds the proposal's row. The vote that makes enough of
//! them approves it in the same transaction, so that it is approved once. Votes and members are counted by one question,
//! as they are at one moment: a membership that changes at the same time counts as before it or as after it.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::approve::settle;
use crate::enter::{Held, enter, hold};
use crate::tell::{OfProposal, VOTE_WITHDRAWN, VOTED, tell};
use crate::{Decisions, Error, Event, ProposalType, Status, store};

/// What somebody's vote is to be.
#[derive(Clone, Debug)]
struct Ballot {
    event: Id,
    proposal: Id,
    person: Id,
    now: Millis,
}

/// A proposal after a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voted {
    pub proposal: i64,
    pub proposal_type: ProposalType,
    pub status: Status,
    pub votes: u64,
    pub voted: bool,
}

#[derive(Clone, Copy, Debug)]
struct Tally {
    votes: u64,
    members: u64,
}

impl Tally {
    fn reaches(self, percent: u64) -> bool {
        self.votes > 0 && self.votes.saturating_mul(100) >= percent.saturating_mul(self.members)
    }
}

impl Decisions {
    /// Voting again changes nothing, also after it was decided.
    pub async fn vote(&self, event: Id, proposal: Id, person: Id) -> Result<Voted, Error> {
        let ballot = Ballot { event, proposal, person, now: self.clock.now() };
        self.records.write(ballot, vote).await
    }

    /// Without a vote there is nothing to take back, and nothing changes.
    pub async fn withdraw(&self, event: Id, proposal: Id, person: Id) -> Result<Voted, Error> {
        let ballot = Ballot { event, proposal, person, now: self.clock.now() };
        self.records.write(ballot, withdraw).await
    }
}

async fn vote(ballot: &Ballot, tx: &mut Transaction<'_>) -> Result<Voted, Error> {
    let (event, mut held, has_voted) = begin(ballot, tx).await?;
    if has_voted {
        let Tally { votes, .. } = tally(&event, &held, tx).await?;
        return Ok(told(&held, votes, true));
    }
    held.must_be_open()?;
    let arguments =
        [("proposal", held.number.into()), ("person", (&ballot.person).into()), ("now", ballot.now.into())];
    tx.run(&store::VOTE_ADD, &arguments).await?;
    tell(tx, &event, VOTED, &OfProposal::from(&held)).await?;
    let tally = tally(&event, &held, tx).await?;
    if tally.reaches(event.auto_approve_percent) {
        settle(tx, &event, &mut held, Status::Approved, ballot.now).await?;
    }
    Ok(told(&held, tally.votes, true))
}

async fn withdraw(ballot: &Ballot, tx: &mut Transaction<'_>) -> Result<Voted, Error> {
    let (event, held, has_voted) = begin(ballot, tx).await?;
    if has_voted {
        held.must_be_open()?;
        tx.run(&store::VOTE_REMOVE, &of_person(&held, &ballot.person)).await?;
        tell(tx, &event, VOTE_WITHDRAWN, &OfProposal::from(&held)).await?;
    }
    let Tally { votes, .. } = tally(&event, &held, tx).await?;
    Ok(told(&held, votes, false))
}

/// The event, the proposal, held, and whether the person has voted for it.
async fn begin(ballot: &Ballot, tx: &mut Transaction<'_>) -> Result<(Event, Held, bool), Error> {
    let event = enter(tx, &ballot.event, &ballot.person).await?;
    let held = hold(tx, &event, &ballot.proposal).await?;
    let vote = tx.row(&store::VOTE, &of_person(&held, &ballot.person)).await?;
    Ok((event, held, vote.is_some()))
}

fn of_person(held: &Held, person: &Id) -> [(&'static str, bongsu_sql::Value); 2] {
    [("proposal", held.number.into()), ("person", person.into())]
}

async fn tally(event: &Event, held: &Held, tx: &mut Transaction<'_>) -> Result<Tally, Error> {
    let arguments = [("target", (&event.id).into()), ("proposal", held.number.into())];
    let row = tx.row(&store::TALLY, &arguments).await?;
    let row = row.ok_or_else(|| bongsu_sql::Error::Failed("votes cannot be counted".to_owned()))?;
    Ok(Tally { votes: row.count(0)?, members: row.count(1)? })
}

fn told(held: &Held, votes: u64, voted: bool) -> Voted {
    Voted { proposal: held.number, proposal_type: held.proposal_type, status: held.status, votes, voted }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_is_counted_exactly() {
        let reaches = |votes, members, percent| Tally { votes, members }.reaches(percent);
        assert!(reaches(1, 2, 50) && !reaches(1, 3, 50) && reaches(2, 3, 50));
        assert!(!reaches(1, 3, 34) && reaches(1, 3, 33), "a third is less than 34 and more than 33 percent");
        assert!(reaches(3, 3, 100) && !reaches(2, 3, 100));
        assert!(reaches(1, 100, 1) && !reaches(1, 101, 1));
        assert!(!reaches(0, 0, 50), "nobody's votes are not enough for anything");
        assert!(reaches(u64::MAX, u64::MAX, 100));
    }
}
