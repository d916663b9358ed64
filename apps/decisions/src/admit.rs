//! Letting people take part, or not any more: by the creator of the event, or an operator.
//!
//! The outbox's triggers tell streams of a membership that ends. A change of members alone decides nothing: how many
//! votes are enough is looked at when somebody votes.

use bongsu_kernel::Id;
use bongsu_sql::Transaction;

use crate::enter::{enter, find};
use crate::{Decisions, Error, Membership, store};

/// Who admits.
#[derive(Clone, Debug)]
pub enum By {
    Operator,
    Person(Id),
}

/// Whose membership becomes what.
#[derive(Clone, Debug)]
pub struct Admission {
    pub event: Id,
    pub person: Id,
    pub status: Membership,
}

impl Decisions {
    /// Repeating it changes nothing.
    pub async fn admit(&self, by: By, admission: Admission) -> Result<(), Error> {
        self.records.write((by, admission), admit).await
    }
}

async fn admit((by, admission): &(By, Admission), tx: &mut Transaction<'_>) -> Result<(), Error> {
    let Admission { event, person, status } = admission;
    let event = match by {
        By::Operator => find(tx, event).await?,
        By::Person(by) => {
            let event = enter(tx, event, by).await?;
            if event.creator != *by {
                return Err(Error::NotCreator);
            }
            // Nobody would be left who decides and admits; an operator may do it, who can undo it.
            if *person == *by && *status != Membership::Accepted {
                return Err(Error::CreatorStays);
            }
            event
        }
    };
    let arguments =
        [("target", (&event.id).into()), ("person", person.into()), ("status", status.as_str().into())];
    tx.run(&store::MEMBER_PUT, &arguments).await?;
    Ok(())
}
