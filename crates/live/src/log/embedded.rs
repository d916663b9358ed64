//! The log in the embedded SQLite file.
//!
//! Appends are jobs of the writer thread, which commits a group of them in one synced transaction, and then delivers
//! and answers each in order. Reads use their own connections and snapshots.

mod append;
mod event_trace;
mod follow_ups;
mod key_sweep;
mod membership;
mod read;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, StreamId};
use bongsu_sql::{Error, Migration, Store};
use tokio::sync::{Notify, oneshot};

use self::membership::MembershipVersions;
use super::{
    Append, AppendError, AppendOutcome, Log, LogError, LogFuture, LogPosition, Page, ReadLimits, Sink,
};
use crate::SubjectName;

pub use event_trace::trace_event;
pub use follow_ups::EmbeddedFollowUps;

/// The tables of this log.
pub const MIGRATIONS: &[Migration] = &[
    migration(1, include_str!("../../migrations/sqlite/0001_log.sql")),
    migration(2, include_str!("../../migrations/sqlite/0002_trace.sql")),
];

const fn migration(number: u32, sqlite: &'static str) -> Migration {
    Migration { part: "log", number, sqlite, servers: None }
}

/// How long a caller waits for an append. After a timeout the append may still be committed.
const APPEND_TIMEOUT: Duration = Duration::from_secs(5);

/// The log of a hub with embedded storage.
pub struct EmbeddedLog {
    store: Store,
    clock: Clock,
    sink: Arc<dyn Sink>,
    /// Notified after an append with follow-up records was committed.
    follow_up_added: Arc<Notify>,
    memberships: Arc<MembershipVersions>,
}

impl EmbeddedLog {
    /// Keeps at most `max_keys` idempotency keys: removes the oldest above this limit even before they expire.
    pub fn start(
        store: Store,
        max_keys: u64,
        clock: Clock,
        sink: Arc<dyn Sink>,
        supervisor: &Supervisor,
    ) -> Self {
        key_sweep::start(store.clone(), max_keys, clock.clone(), supervisor);
        Self { store, clock, sink, follow_up_added: Arc::default(), memberships: Arc::default() }
    }

    /// The follow-up records that this log stores.
    pub fn follow_ups(&self) -> EmbeddedFollowUps {
        EmbeddedFollowUps { store: self.store.clone(), added: self.follow_up_added.clone() }
    }
}

impl Log for EmbeddedLog {
    fn append(&self, events: Vec<Append>) -> LogFuture<'_, Vec<Result<AppendOutcome, AppendError>>> {
        Box::pin(async move {
            if self.store.writer().is_stuck() {
                return Err(LogError::Failed("the disk does not answer".to_owned()));
            }
            let (reply, answer) = oneshot::channel();
            let job = append::Job {
                outcomes: Vec::with_capacity(events.len()),
                events,
                clock: self.clock.clone(),
                sink: self.sink.clone(),
                follow_up_added: self.follow_up_added.clone(),
                memberships: self.memberships.clone(),
                reply,
                accepted: Instant::now(),
            };
            let appended = async {
                self.store.writer().submit(Box::new(job)).await?;
                answer.await.unwrap_or(Err(Error::Closed))
            };
            match tokio::time::timeout(APPEND_TIMEOUT, appended).await {
                Ok(outcome) => outcome.map_err(LogError::from),
                Err(_) => Err(LogError::TimedOut),
            }
        })
    }

    fn read(&self, subject: &SubjectName, after: StreamId, limits: ReadLimits) -> LogFuture<'_, Page> {
        let subject = subject.clone();
        Box::pin(async move {
            let page =
                self.store.readers().read(move |connection| read::page(connection, &subject, after, limits));
            Ok(page.await?)
        })
    }

    fn head(&self, subject: &SubjectName) -> LogFuture<'_, LogPosition> {
        let subject = subject.clone();
        Box::pin(async move {
            Ok(self.store.readers().read(move |connection| read::head(connection, &subject)).await?)
        })
    }

    fn purge(&self, subject: &SubjectName) -> LogFuture<'_, ()> {
        let subject = subject.clone();
        Box::pin(async move {
            self.store.write(move |connection| append::purge(connection, &subject)).await?;
            Ok(())
        })
    }

    fn membership_version(&self, subject: &SubjectName) -> LogFuture<'_, u64> {
        Box::pin(std::future::ready(Ok(self.memberships.current(subject))))
    }

    fn change_membership_version(&self, subject: &SubjectName) -> LogFuture<'_, ()> {
        self.memberships.change(subject);
        Box::pin(std::future::ready(Ok(())))
    }

    fn outage(&self) -> Option<&'static str> {
        self.store.writer().outage()
    }
}

impl From<Error> for LogError {
    fn from(error: Error) -> Self {
        match error {
            Error::Full => Self::Full,
            other => Self::Failed(other.to_string()),
        }
    }
}

/// Converts a number for SQLite, whose integers are signed. A number above `i64::MAX`, which no row contains,
/// becomes `i64::MAX`.
fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
