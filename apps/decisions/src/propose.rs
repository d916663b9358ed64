//! Creates proposals.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::access::lock_membership;
use crate::outbox_events::{PROPOSED, ProposalPayload, record_event};
use crate::{Decisions, Proposal, ProposalType, Result, Status, store};

/// A proposal to be created, with its proposer.
#[derive(Clone, Debug)]
pub struct NewProposal {
    pub event: Id,
    pub person: Id,
    pub proposal_type: ProposalType,
    pub content: String,
}

impl Decisions {
    pub async fn propose(&self, proposal: NewProposal) -> Result<Proposal> {
        self.records.write((proposal, self.clock.now()), propose).await
    }
}

async fn propose((new, now): &(NewProposal, Millis), tx: &mut Transaction<'_>) -> Result<Proposal> {
    let event = lock_membership(tx, &new.event, &new.person).await?;
    let arguments = [
        ("event", event.number.into()),
        ("type", new.proposal_type.as_str().into()),
        ("content", new.content.as_str().into()),
        ("person", (&new.person).into()),
        ("now", (*now).into()),
    ];
    tx.run(&store::PROPOSAL_ADD, &arguments).await?;
    let number = store::inserted_id(tx).await?;
    let payload = ProposalPayload { proposal_id: number.into(), proposal_type: new.proposal_type };
    record_event(tx, &event, PROPOSED, &payload).await?;
    Ok(Proposal {
        number,
        proposal_type: new.proposal_type,
        status: Status::Pending,
        content: new.content.clone(),
        proposer: new.person.clone(),
        created_at: *now,
        decided_at: None,
        votes: 0,
        has_voted: false,
    })
}
