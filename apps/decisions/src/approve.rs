//! Deciding about a proposal: by the creator of the event, or by enough votes. What was decided stays decided.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::enter::{Held, enter, hold};
use crate::tell::{APPROVED, OfDecision, OfProposal, REJECTED, tell};
use crate::{Decisions, Error, Event, ProposalType, Status, store};

/// What the creator says to a proposal.
#[derive(Clone, Debug)]
struct Word {
    event: Id,
    proposal: Id,
    person: Id,
    status: Status,
    now: Millis,
}

/// A proposal that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    pub proposal: i64,
    pub proposal_type: ProposalType,
    pub status: Status,
}

impl Decisions {
    /// Approving what is approved changes nothing.
    pub async fn approve(&self, event: Id, proposal: Id, person: Id) -> Result<Decided, Error> {
        self.decide(event, proposal, person, Status::Approved).await
    }

    /// Rejecting what is rejected changes nothing.
    pub async fn reject(&self, event: Id, proposal: Id, person: Id) -> Result<Decided, Error> {
        self.decide(event, proposal, person, Status::Rejected).await
    }

    async fn decide(&self, event: Id, proposal: Id, person: Id, status: Status) -> Result<Decided, Error> {
        let word = Word { event, proposal, person, status, now: self.clock.now() };
        self.records.write(word, decide).await
    }
}

async fn decide(word: &Word, tx: &mut Transaction<'_>) -> Result<Decided, Error> {
    let event = enter(tx, &word.event, &word.person).await?;
    if event.creator != word.person {
        return Err(Error::NotCreator);
    }
    let mut held = hold(tx, &event, &word.proposal).await?;
    if held.status != word.status {
        held.must_be_open()?;
        settle(tx, &event, &mut held, word.status, word.now).await?;
    }
    Ok(Decided { proposal: held.number, proposal_type: held.proposal_type, status: held.status })
}

/// Decides about a proposal that is held and open.
pub(crate) async fn settle(
    tx: &mut Transaction<'_>,
    event: &Event,
    held: &mut Held,
    status: Status,
    now: Millis,
) -> Result<(), Error> {
    let arguments =
        [("proposal", held.number.into()), ("status", status.as_str().into()), ("now", now.into())];
    tx.run(&store::PROPOSAL_SETTLE, &arguments).await?;
    held.status = status;
    let event_type = if status == Status::Approved { APPROVED } else { REJECTED };
    tell(tx, event, event_type, &OfDecision { proposal: OfProposal::from(&*held), status }).await
}
