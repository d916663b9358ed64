//! Proposing something.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::Transaction;

use crate::enter::enter;
use crate::tell::{OfProposal, PROPOSED, tell};
use crate::{Decisions, Error, Proposal, ProposalType, Status, store};

/// What is proposed, and by whom.
#[derive(Clone, Debug)]
pub struct NewProposal {
    pub event: Id,
    pub person: Id,
    pub proposal_type: ProposalType,
    pub content: String,
}

impl Decisions {
    pub async fn propose(&self, proposal: NewProposal) -> Result<Proposal, Error> {
        self.records.write((proposal, self.clock.now()), propose).await
    }
}

async fn propose((new, now): &(NewProposal, Millis), tx: &mut Transaction<'_>) -> Result<Proposal, Error> {
    let event = enter(tx, &new.event, &new.person).await?;
    let arguments = [
        ("event", event.number.into()),
        ("type", new.proposal_type.as_str().into()),
        ("content", new.content.as_str().into()),
        ("person", (&new.person).into()),
        ("now", (*now).into()),
    ];
    tx.run(&store::PROPOSAL_ADD, &arguments).await?;
    let number = store::given_id(tx).await?;
    let payload = OfProposal { proposal_id: number.into(), proposal_type: new.proposal_type };
    tell(tx, &event, PROPOSED, &payload).await?;
    Ok(Proposal {
        number,
        proposal_type: new.proposal_type,
        status: Status::Pending,
        content: new.content.clone(),
        proposer: new.person.clone(),
        created_at: *now,
        decided_at: None,
        votes: 0,
        voted: false,
    })
}
