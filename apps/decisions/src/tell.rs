//! What everybody who follows an event is told. Payloads are as small as they can be: whoever wants more asks.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::{self, TraceParent};
use bongsu_kernel::{Id, crash_point};
use bongsu_outbox::record;
use bongsu_sql::Transaction;
use serde::Serialize;

use crate::enter::Held;
use crate::{Error, Event, ProposalType, Status};

pub(crate) const PROPOSED: &str = "proposal.created.v1";
pub(crate) const VOTED: &str = "proposal.vote.created.v1";
pub(crate) const VOTE_WITHDRAWN: &str = "proposal.vote.deleted.v1";
pub(crate) const APPROVED: &str = "proposal.approved.v1";
pub(crate) const REJECTED: &str = "proposal.rejected.v1";
pub(crate) const COMMENTED: &str = "comment.created.v1";

#[derive(Serialize)]
pub(crate) struct OfProposal {
    pub(crate) proposal_id: Id,
    pub(crate) proposal_type: ProposalType,
}

impl From<&Held> for OfProposal {
    fn from(held: &Held) -> Self {
        Self { proposal_id: held.number.into(), proposal_type: held.proposal_type }
    }
}

#[derive(Serialize)]
pub(crate) struct OfDecision {
    #[serde(flatten)]
    pub(crate) proposal: OfProposal,
    pub(crate) status: Status,
}

#[derive(Serialize)]
pub(crate) struct OfComment {
    pub(crate) comment_id: Id,
    pub(crate) criterion_id: Id,
}

/// Writes it down in the transaction of the change: both count, or neither.
pub(crate) async fn tell(
    tx: &mut Transaction<'_>,
    event: &Event,
    event_type: &str,
    payload: &impl Serialize,
) -> Result<(), Error> {
    crash_point!("before-decision-told");
    let unwritten = || bongsu_sql::Error::Failed(format!("no payload for {event_type}"));
    let payload = serde_json::to_string(payload).ok().and_then(|text| Object::stored(&text));
    let payload = payload.ok_or_else(unwritten)?;
    let trace = trace::current();
    let traceparent = trace.as_ref().map(TraceParent::as_str);
    let told = bongsu_outbox::Event { event_type, payload: &payload, target: &event.id, traceparent };
    Ok(record(tx, told).await?)
}
