//! Closes outbox streams whose membership was removed without a `system.removed` row.
//!
//! Normally that row closes the stream at the row's position. Some changes write no row: TRUNCATE on MariaDB, a dropped
//! partition, disabled triggers. So every open stream is checked against the memberships every 30 seconds, and closed
//! when two consecutive checks find none (the first may have run between two steps of a change). A stream that still
//! has a `system.removed` row ahead of it is left to that row, however far behind the reader is.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Close, Id, lock};
use bongsu_live::{CloseHandle, LiveStream};
use bongsu_sql::{Result, Transaction};

use crate::Outbox;
use crate::store::{self, list};

/// Time between two checks of the same stream.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Streams checked by one query.
const CHECK_BATCH_SIZE: usize = 5_000;

/// The open outbox streams of this instance.
#[derive(Default)]
pub(crate) struct OpenStreams(Mutex<StreamTable>);

#[derive(Default)]
struct StreamTable {
    /// The number of the newest stream.
    last_number: u64,
    streams: HashMap<u64, OpenStream>,
}

struct OpenStream {
    membership: MembershipKey,
    close_handle: CloseHandle,
    /// The previous check found no membership.
    was_missing: bool,
}

/// The membership that a stream depends on, as a check reads it.
#[derive(Clone)]
struct MembershipKey {
    /// The number of the stream.
    number: u64,
    event: Id,
    person: Id,
    /// The delivered position when the stream opened: a `system.removed` row after this position closes the stream.
    since: u64,
}

impl OpenStreams {
    /// Closes the checked streams that have no membership for the second time in a row.
    fn close_missing(&self, checked: &[MembershipKey], missing: &HashSet<u64>) {
        let mut table = lock(&self.0);
        for MembershipKey { number, event, person, .. } in checked {
            let Some(stream) = table.streams.get_mut(number) else { continue };
            let is_missing = missing.contains(number);
            if is_missing && stream.was_missing {
                tracing::warn!(%event, %person, "a stream has no membership and no system.removed row ahead; closing it");
                stream.close_handle.close(Close::Withdrawn);
            }
            stream.was_missing = is_missing;
        }
    }
}

/// Keeps a stream in the table of open streams until dropped.
struct OpenStreamGuard {
    outbox: Outbox,
    number: u64,
}

impl Drop for OpenStreamGuard {
    fn drop(&mut self) {
        lock(&self.outbox.0.open_streams.0).streams.remove(&self.number);
    }
}

impl Outbox {
    /// Checks the membership of this stream regularly for as long as the stream is open.
    pub(crate) fn with_membership_check(&self, stream: LiveStream, event: Id, person: Id) -> LiveStream {
        let (since, close_handle) = (self.delivered_position(), stream.close_handle());
        let mut table = lock(&self.0.open_streams.0);
        table.last_number += 1;
        let number = table.last_number;
        let membership = MembershipKey { number, event, person, since };
        table.streams.insert(number, OpenStream { membership, close_handle, was_missing: false });
        drop(table);
        stream.with_resource(OpenStreamGuard { outbox: self.clone(), number })
    }

    pub(crate) fn start_membership_check(&self, supervisor: &Supervisor) {
        supervisor.every("outbox-membership-check", CHECK_INTERVAL, self, |outbox| async move {
            outbox.check_open_streams().await;
        });
    }

    async fn check_open_streams(&self) {
        let memberships: Vec<MembershipKey> =
            lock(&self.0.open_streams.0).streams.values().map(|stream| stream.membership.clone()).collect();
        for batch in memberships.chunks(CHECK_BATCH_SIZE) {
            let input = (Arc::<[MembershipKey]>::from(batch), self.0.options.has_membership_query);
            match self.records().read(input, find_missing).await {
                Ok(missing) => self.0.open_streams.close_missing(batch, &missing),
                // The engine logs an outage of the database once.
                Err(error) if error.is_transient() => {
                    tracing::debug!(%error, "failed to check stream memberships; retrying at the next check");
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to check stream memberships; retrying at the next check");
                }
            }
        }
    }
}

/// Returns the numbers of the streams without a membership.
async fn find_missing(
    (memberships, has_query): &(Arc<[MembershipKey]>, bool),
    tx: &mut Transaction<'_>,
) -> Result<HashSet<u64>> {
    // Ids are passed as JSON strings, so that an id that looks like a number does not become one.
    let listed: Vec<(u64, &str, &str, u64)> = memberships
        .iter()
        .map(|membership| {
            (membership.number, membership.event.as_str(), membership.person.as_str(), membership.since)
        })
        .collect();
    let query = if *has_query { &store::MISSING_MEMBERSHIP_BY_QUERY } else { &store::MISSING_MEMBERSHIP };
    let rows = tx.rows(query, &[("followers", list(&listed)?.into())]).await?;
    rows.iter().map(|row| row.count(0)).collect()
}
