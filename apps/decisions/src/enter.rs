//! Who may take part: those whose membership of the event is accepted.
//!
//! Whoever changes something holds their own membership meanwhile, so that its end, whoever ends it, comes before (and
//! the change is refused) or after (and the change is told before it). Whoever needs a proposal holds that afterwards.

use bongsu_kernel::{Id, Millis};
use bongsu_sql::{Query, Transaction};

use crate::store;
use crate::words::kept;
use crate::{Error, Membership, ProposalType, Status, number};

/// Something that is being decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// As the outbox and `memberships` know it: `number` as text.
    pub id: Id,
    pub number: i64,
    pub title: String,
    pub auto_approve_percent: u64,
    pub creator: Id,
    pub created_at: Millis,
}

/// A proposal whose row is held: nobody else votes, decides or comments meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    pub(crate) number: i64,
    pub(crate) proposal_type: ProposalType,
    pub(crate) status: Status,
}

impl Held {
    fn is_criterion(&self) -> bool {
        self.proposal_type == ProposalType::Criteria
    }

    /// What was decided stays decided.
    pub(crate) fn must_be_open(&self) -> Result<(), Error> {
        match self.status {
            Status::Pending => Ok(()),
            decided => Err(Error::Decided(decided)),
        }
    }
}

pub(crate) async fn find(tx: &mut Transaction<'_>, event: &Id) -> Result<Event, Error> {
    let number = number(event).ok_or(Error::NoEvent)?;
    let row = tx.row(&store::EVENT, &[("event", number.into())]).await?.ok_or(Error::NoEvent)?;
    Ok(Event {
        id: event.clone(),
        number: row.int(0)?,
        title: row.text(1)?.to_owned(),
        auto_approve_percent: row.count(2)?,
        creator: row.id(3)?,
        created_at: row.count(4)?,
    })
}

/// Lets somebody in who changes something.
pub(crate) async fn enter(tx: &mut Transaction<'_>, event: &Id, person: &Id) -> Result<Event, Error> {
    admitted(tx, &store::MEMBER_HOLD, event, person).await
}

/// Lets somebody in who only looks.
pub(crate) async fn look_in(tx: &mut Transaction<'_>, event: &Id, person: &Id) -> Result<Event, Error> {
    admitted(tx, &store::MEMBER, event, person).await
}

async fn admitted(tx: &mut Transaction<'_>, member: &Query, event: &Id, person: &Id) -> Result<Event, Error> {
    let event = find(tx, event).await?;
    let row = tx.row(member, &[("target", (&event.id).into()), ("person", person.into())]).await?;
    // Other programs write there, too: whatever they may say beside it, only this lets in.
    let status = row.as_ref().map(|row| row.maybe_text(0)).transpose()?.flatten();
    if status == Some(Membership::Accepted.as_str()) { Ok(event) } else { Err(Error::Stranger) }
}

/// Takes hold of a proposal.
pub(crate) async fn hold(tx: &mut Transaction<'_>, event: &Event, proposal: &Id) -> Result<Held, Error> {
    read(tx, &store::PROPOSAL_HOLD, event, proposal).await?.ok_or(Error::NoProposal)
}

/// Takes hold of a criterion: a proposal of that type.
pub(crate) async fn hold_criterion(
    tx: &mut Transaction<'_>,
    event: &Event,
    criterion: &Id,
) -> Result<Held, Error> {
    let held = read(tx, &store::PROPOSAL_HOLD, event, criterion).await?;
    held.filter(Held::is_criterion).ok_or(Error::NoCriterion)
}

/// The number of a criterion, for who only looks.
pub(crate) async fn criterion(tx: &mut Transaction<'_>, event: &Event, id: &Id) -> Result<i64, Error> {
    let found = read(tx, &store::PROPOSAL, event, id).await?;
    found.filter(Held::is_criterion).map(|found| found.number).ok_or(Error::NoCriterion)
}

async fn read(
    tx: &mut Transaction<'_>,
    query: &Query,
    event: &Event,
    proposal: &Id,
) -> Result<Option<Held>, Error> {
    let Some(number) = number(proposal) else { return Ok(None) };
    let row = tx.row(query, &[("event", event.number.into()), ("proposal", number.into())]).await?;
    row.map(|row| {
        let (proposal_type, status) =
            (kept(row.text(0)?, ProposalType::named)?, kept(row.text(1)?, Status::named)?);
        Ok(Held { number, proposal_type, status })
    })
    .transpose()
}
