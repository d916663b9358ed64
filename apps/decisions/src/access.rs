//! Checks that a person is an accepted member of an event, and locks rows for changes.
//!
//! A change first locks the person's own membership. If a transaction that ends this membership has committed
//! before, the change is refused. Otherwise that transaction waits, and its outbox row follows the row of the
//! change. A change of a proposal then locks the proposal, always in this order.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Query, Transaction};

use crate::store;
use crate::text_enums::parse_stored;
use crate::{Error, Membership, ProposalType, Result, Status, parse_number};

/// A question that its members decide, with proposals and comments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionEvent {
    /// `number` as text: the id in the outbox and in `memberships`.
    pub id: Id,
    /// The primary key in `decision_events`.
    pub number: i64,
    pub title: String,
    pub auto_approve_percent: u64,
    pub creator: Id,
    pub created_at: Millis,
}

/// A proposal. Its row is locked if it comes from [`lock_proposal`] or [`lock_criterion`]: until the end of the
/// transaction no other transaction can vote for it, decide it, or comment on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LockedProposal {
    pub(crate) number: i64,
    pub(crate) proposal_type: ProposalType,
    pub(crate) status: Status,
}

impl LockedProposal {
    fn is_criterion(&self) -> bool {
        self.proposal_type == ProposalType::Criteria
    }

    /// Fails if the proposal has been decided.
    pub(crate) fn require_pending(&self) -> Result<()> {
        match self.status {
            Status::Pending => Ok(()),
            decided => Err(Error::AlreadyDecided(decided)),
        }
    }
}

pub(crate) async fn find_event(tx: &mut Transaction<'_>, event: &Id) -> Result<DecisionEvent> {
    let number = parse_number(event).ok_or(Error::EventNotFound)?;
    let row = tx.row(&store::EVENT, &[("event", number.into())]).await?.ok_or(Error::EventNotFound)?;
    Ok(DecisionEvent {
        id: event.clone(),
        number: row.int(0)?,
        title: row.text(1)?.to_owned(),
        auto_approve_percent: row.count(2)?,
        creator: row.id(3)?,
        created_at: row.count(4)?,
    })
}

/// Checks the membership of a person who makes a change, and locks it until the end of the transaction.
pub(crate) async fn lock_membership(
    tx: &mut Transaction<'_>,
    event: &Id,
    person: &Id,
) -> Result<DecisionEvent> {
    require_member(tx, &store::MEMBER_LOCK, event, person).await
}

/// Checks the membership of a person who only reads, without a lock.
pub(crate) async fn check_membership(
    tx: &mut Transaction<'_>,
    event: &Id,
    person: &Id,
) -> Result<DecisionEvent> {
    require_member(tx, &store::MEMBER, event, person).await
}

async fn require_member(
    tx: &mut Transaction<'_>,
    membership: &Query,
    event: &Id,
    person: &Id,
) -> Result<DecisionEvent> {
    let event = find_event(tx, event).await?;
    let row = tx.row(membership, &[("target", (&event.id).into()), ("person", person.into())]).await?;
    // Other programs also write to `memberships`, with any status. Only `ACCEPTED` gives access.
    let status = row.as_ref().map(|row| row.maybe_text(0)).transpose()?.flatten();
    if status == Some(Membership::Accepted.as_str()) { Ok(event) } else { Err(Error::NotMember) }
}

/// Reads a proposal and locks its row until the end of the transaction.
pub(crate) async fn lock_proposal(
    tx: &mut Transaction<'_>,
    event: &DecisionEvent,
    proposal: &Id,
) -> Result<LockedProposal> {
    read_proposal(tx, &store::PROPOSAL_LOCK, event, proposal).await?.ok_or(Error::ProposalNotFound)
}

/// Reads a proposal of type `criteria` and locks its row until the end of the transaction.
pub(crate) async fn lock_criterion(
    tx: &mut Transaction<'_>,
    event: &DecisionEvent,
    criterion: &Id,
) -> Result<LockedProposal> {
    let proposal = read_proposal(tx, &store::PROPOSAL_LOCK, event, criterion).await?;
    proposal.filter(LockedProposal::is_criterion).ok_or(Error::CriterionNotFound)
}

/// Returns the number of a proposal of type `criteria`, without a lock.
pub(crate) async fn find_criterion(tx: &mut Transaction<'_>, event: &DecisionEvent, id: &Id) -> Result<i64> {
    let proposal = read_proposal(tx, &store::PROPOSAL, event, id).await?;
    proposal
        .filter(LockedProposal::is_criterion)
        .map(|proposal| proposal.number)
        .ok_or(Error::CriterionNotFound)
}

async fn read_proposal(
    tx: &mut Transaction<'_>,
    query: &Query,
    event: &DecisionEvent,
    proposal: &Id,
) -> Result<Option<LockedProposal>> {
    let Some(number) = parse_number(proposal) else { return Ok(None) };
    let row = tx.row(query, &[("event", event.number.into()), ("proposal", number.into())]).await?;
    row.map(|row| {
        let (proposal_type, status) =
            (parse_stored(row.text(0)?, ProposalType::parse)?, parse_stored(row.text(1)?, Status::parse)?);
        Ok(LockedProposal { number, proposal_type, status })
    })
    .transpose()
}
