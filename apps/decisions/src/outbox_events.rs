//! The outbox events of this application. Payloads hold only ids, types and statuses; clients read the rest by the API.

use bongsu_kernel::json::Object;
use bongsu_kernel::trace::{self, TraceParent};
use bongsu_kernel::{Id, crash_point};
use bongsu_outbox::record;
use bongsu_sql::Transaction;
use serde::Serialize;

use crate::access::LockedProposal;
use crate::{DecisionEvent, ProposalType, Result, Status};

pub(crate) const PROPOSED: &str = "proposal.created.v1";
pub(crate) const VOTED: &str = "proposal.vote.created.v1";
pub(crate) const VOTE_WITHDRAWN: &str = "proposal.vote.deleted.v1";
pub(crate) const APPROVED: &str = "proposal.approved.v1";
pub(crate) const REJECTED: &str = "proposal.rejected.v1";
pub(crate) const COMMENTED: &str = "comment.created.v1";

#[derive(Serialize)]
pub(crate) struct ProposalPayload {
    pub(crate) proposal_id: Id,
    pub(crate) proposal_type: ProposalType,
}

impl From<&LockedProposal> for ProposalPayload {
    fn from(proposal: &LockedProposal) -> Self {
        Self { proposal_id: proposal.number.into(), proposal_type: proposal.proposal_type }
    }
}

#[derive(Serialize)]
pub(crate) struct DecisionPayload {
    #[serde(flatten)]
    pub(crate) proposal: ProposalPayload,
    pub(crate) status: Status,
}

#[derive(Serialize)]
pub(crate) struct CommentPayload {
    pub(crate) comment_id: Id,
    pub(crate) criterion_id: Id,
}

/// Records an outbox event in the transaction of the change: both are committed, or neither.
pub(crate) async fn record_event(
    tx: &mut Transaction<'_>,
    event: &DecisionEvent,
    event_type: &str,
    payload: &impl Serialize,
) -> Result<()> {
    crash_point!("before-decision-told");
    let invalid = || bongsu_sql::Error::Failed(format!("the payload of {event_type} is not a JSON object"));
    let payload = serde_json::to_string(payload).ok().and_then(|text| Object::from_stored(&text));
    let payload = payload.ok_or_else(invalid)?;
    let trace = trace::current();
    let traceparent = trace.as_ref().map(TraceParent::as_str);
    let event = bongsu_outbox::Event { event_type, payload: &payload, target: &event.id, traceparent };
    Ok(record(tx, event).await?)
}
