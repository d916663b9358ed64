//! Sets memberships of events: by the creator of the event, or by an operator.
//!
//! The triggers of the outbox close the streams of a membership that ends. A change of members approves no proposal:
//! only a vote compares the votes with the number of members.

use bongsu_kernel::Id;
use bongsu_sql::Transaction;

use crate::access::{find_event, lock_membership};
use crate::{Decisions, Error, Membership, Result, store};

/// The caller that sets a membership: an operator or a person.
#[derive(Clone, Debug)]
pub enum Actor {
    Operator,
    Person(Id),
}

/// The new status of a person's membership.
#[derive(Clone, Debug)]
pub struct MembershipChange {
    pub event: Id,
    pub person: Id,
    pub status: Membership,
}

impl Decisions {
    /// Sets a membership. Idempotent.
    pub async fn set_membership(&self, actor: Actor, change: MembershipChange) -> Result<()> {
        self.records.write((actor, change), set_membership).await
    }
}

async fn set_membership((actor, change): &(Actor, MembershipChange), tx: &mut Transaction<'_>) -> Result<()> {
    let MembershipChange { event, person, status } = change;
    let event = match actor {
        Actor::Operator => find_event(tx, event).await?,
        Actor::Person(actor) => {
            let event = lock_membership(tx, event, actor).await?;
            if event.creator != *actor {
                return Err(Error::NotCreator);
            }
            // Without the creator, no member can reject proposals or set memberships. An operator may end the
            // creator's membership, because an operator can also restore it.
            if *person == *actor && *status != Membership::Accepted {
                return Err(Error::CreatorMustStay);
            }
            event
        }
    };
    let arguments =
        [("target", (&event.id).into()), ("person", person.into()), ("status", status.as_str().into())];
    tx.run(&store::MEMBER_PUT, &arguments).await?;
    Ok(())
}
