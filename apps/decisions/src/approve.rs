//! Approves and rejects proposals: by the creator of the event, or by enough votes. A decision is final.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::access::{LockedProposal, lock_membership, lock_proposal};
use crate::outbox_events::{APPROVED, DecisionPayload, ProposalPayload, REJECTED, record_event};
use crate::{DecisionEvent, Decisions, Error, ProposalType, Result, Status, store};

/// A decision that a person asks for.
#[derive(Clone, Debug)]
struct DecisionRequest {
    event: Id,
    proposal: Id,
    person: Id,
    status: Status,
    now: Millis,
}

/// The decision about a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub proposal: i64,
    pub proposal_type: ProposalType,
    pub status: Status,
}

impl Decisions {
    /// Approves a proposal. Without effect if it is approved already.
    pub async fn approve(&self, event: Id, proposal: Id, person: Id) -> Result<Decision> {
        self.decide(event, proposal, person, Status::Approved).await
    }

    /// Rejects a proposal. Without effect if it is rejected already.
    pub async fn reject(&self, event: Id, proposal: Id, person: Id) -> Result<Decision> {
        self.decide(event, proposal, person, Status::Rejected).await
    }

    async fn decide(&self, event: Id, proposal: Id, person: Id, status: Status) -> Result<Decision> {
        let request = DecisionRequest { event, proposal, person, status, now: self.clock.now() };
        self.records.write(request, decide).await
    }
}

async fn decide(request: &DecisionRequest, tx: &mut Transaction<'_>) -> Result<Decision> {
    let event = lock_membership(tx, &request.event, &request.person).await?;
    if event.creator != request.person {
        return Err(Error::NotCreator);
    }
    let mut proposal = lock_proposal(tx, &event, &request.proposal).await?;
    if proposal.status != request.status {
        proposal.require_pending()?;
        apply_decision(tx, &event, &mut proposal, request.status, request.now).await?;
    }
    Ok(Decision { proposal: proposal.number, proposal_type: proposal.proposal_type, status: proposal.status })
}

/// Sets the status of a pending proposal and records the outbox event.
pub(crate) async fn apply_decision(
    tx: &mut Transaction<'_>,
    event: &DecisionEvent,
    proposal: &mut LockedProposal,
    status: Status,
    now: Millis,
) -> Result<()> {
    let arguments =
        [("proposal", proposal.number.into()), ("status", status.as_str().into()), ("now", now.into())];
    tx.run(&store::PROPOSAL_DECIDE, &arguments).await?;
    proposal.status = status;
    let event_type = if status == Status::Approved { APPROVED } else { REJECTED };
    let payload = DecisionPayload { proposal: ProposalPayload::from(&*proposal), status };
    record_event(tx, event, event_type, &payload).await
}
