//! Checks whether a person may read the stream of an event: only an accepted membership allows it.
//!
//! When a membership ends, a trigger writes a `system.removed` row, and the hub closes the person's streams at the
//! position of that row. The row of an earlier removal must not close the stream of a person who was accepted again, so
//! a new stream opens only after the tail has passed that row.

use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_sql::{Error, Transaction};

use crate::{NO_TARGET, Outbox, store};

const ACCEPTED: &str = "ACCEPTED";
/// How long a request waits for the tail: to pass the removal rows that precede a new stream, or to reach the position
/// at which a client resumes.
pub(crate) const TAIL_WAIT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time between two checks of the tail during that wait.
pub(crate) const TAIL_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Why a person may not read the stream of an event.
#[derive(Debug)]
pub enum MembershipError {
    /// Neither a membership nor a row names the event.
    UnknownEvent,
    /// The person has no accepted membership.
    NotAMember,
    /// The tail has not passed a `system.removed` row of the event yet; the request may be repeated.
    RemovalPending,
    Records(Error),
}

impl From<Error> for MembershipError {
    fn from(error: Error) -> Self {
        Self::Records(error)
    }
}

impl Outbox {
    /// Checks that the person has an accepted membership of the event now.
    pub async fn check_membership(&self, event: &Id, person: &Id) -> Result<(), MembershipError> {
        self.read_membership(event, person).await.map(drop)
    }

    /// Checks the membership before a stream opens, and waits until the tail has passed every `system.removed` row of
    /// the event that is committed.
    pub async fn admit_stream(&self, event: &Id, person: &Id) -> Result<(), MembershipError> {
        let started = Instant::now();
        while !self.read_membership(event, person).await? {
            if started.elapsed() > TAIL_WAIT_TIMEOUT {
                return Err(MembershipError::RemovalPending);
            }
            tokio::time::sleep(TAIL_POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Returns whether the tail has passed every removal row of the event, if the person is an accepted member.
    async fn read_membership(&self, event: &Id, person: &Id) -> Result<bool, MembershipError> {
        if event.as_str() == NO_TARGET {
            return Err(MembershipError::UnknownEvent);
        }
        let (reached, has_query) = (self.delivered_position(), self.0.options.has_membership_query);
        self.records().read((event.clone(), person.clone(), reached, has_query), read_membership).await
    }
}

async fn read_membership(
    (event, person, reached, has_query): &(Id, Id, u64, bool),
    tx: &mut Transaction<'_>,
) -> Result<bool, MembershipError> {
    let query = if *has_query { &store::MEMBERSHIP_BY_QUERY } else { &store::MEMBERSHIP };
    let arguments = [
        ("event", event.into()),
        ("person", person.into()),
        ("reached", (*reached).into()),
        // The names that OUTBOX_MEMBERSHIP_QUERY uses for the same values.
        ("event_id", event.into()),
        ("user_id", person.into()),
    ];
    let row = tx.row(query, &arguments).await?.ok_or(MembershipError::UnknownEvent)?;
    match (row.maybe_text(0)?, row.int(1)?) {
        (Some(ACCEPTED), _) => Ok(row.int(2)? == 0),
        (_, 0) => Err(MembershipError::UnknownEvent),
        _ => Err(MembershipError::NotAMember),
    }
}
