//! Who may follow an event: those with an accepted membership.
//!
//! A right that ends has its row in the order of the others (a trigger writes it), where the hub ends the stream. Whoever
//! was let in again must not meet the row that ended the right before: they begin after it.

use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_sql::{Error, Transaction};

use crate::{NOBODY, Outbox, store};

const ACCEPTED: &str = "ACCEPTED";
/// So long somebody waits until the tail has come to where they stand, and to what ended before they came; it is looked so
/// often.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Why somebody may not follow an event.
#[derive(Debug)]
pub enum RightError {
    NoEvent,
    Stranger,
    /// Not now: a right ended that streams do not know of yet.
    Unsettled,
    Records(Error),
}

impl From<Error> for RightError {
    fn from(error: Error) -> Self {
        Self::Records(error)
    }
}

impl Outbox {
    /// Whether somebody may follow an event right now.
    pub async fn may_follow(&self, event: &Id, person: &Id) -> Result<(), RightError> {
        self.right(event, person).await.map(drop)
    }

    /// The same for somebody who is about to begin: returns when all rights that ended before are known to streams here.
    pub async fn admit(&self, event: &Id, person: &Id) -> Result<(), RightError> {
        let started = Instant::now();
        while !self.right(event, person).await? {
            if started.elapsed() > PATIENCE {
                return Err(RightError::Unsettled);
            }
            tokio::time::sleep(LOOK).await;
        }
        Ok(())
    }

    /// Whether what ended is known here.
    async fn right(&self, event: &Id, person: &Id) -> Result<bool, RightError> {
        if event.as_str() == NOBODY {
            return Err(RightError::NoEvent);
        }
        let (reached, has_query) = (self.reached(), self.0.options.has_membership_query);
        self.records().read((event.clone(), person.clone(), reached, has_query), right).await
    }
}

async fn right(
    (event, person, reached, has_query): &(Id, Id, u64, bool),
    tx: &mut Transaction<'_>,
) -> Result<bool, RightError> {
    let query = if *has_query { &store::RIGHT_BY_QUERY } else { &store::RIGHT };
    let wanted = [
        ("event", event.into()),
        ("person", person.into()),
        ("reached", (*reached).into()),
        // As the query of the settings names them.
        ("event_id", event.into()),
        ("user_id", person.into()),
    ];
    let row = tx.row(query, &wanted).await?.ok_or(RightError::NoEvent)?;
    match (row.maybe_text(0)?, row.int(1)?) {
        (Some(ACCEPTED), _) => Ok(row.int(2)? == 0),
        (_, 0) => Err(RightError::NoEvent),
        _ => Err(RightError::Stranger),
    }
}
