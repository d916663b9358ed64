//! The log in the embedded SQLite file.
//!
//! Appends are jobs of the one writer thread: a group of them is one synced transaction, then each is delivered and
//! answered in order. Reads use snapshots beside it.

mod append;
mod follow_ups;
mod look;
mod membership;
mod read;
mod upkeep;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, StreamId};
use bongsu_sql::{Error, Migration, Store};
use tokio::sync::{Notify, oneshot};

use self::membership::MembershipVersions;
use super::{Append, AppendError, Appended, Boxed, Log, LogError, Most, Page, Place, Sink};
use crate::SubjectName;

pub use follow_ups::EmbeddedFollowUps;
pub use look::look;

/// The tables of this log.
pub const MIGRATIONS: &[Migration] = &[
    Migration {
        part: "log",
        number: 1,
        sqlite: include_str!("../../migrations/sqlite/0001_log.sql"),
        servers: None,
    },
    Migration {
        part: "log",
        number: 2,
        sqlite: include_str!("../../migrations/sqlite/0002_trace.sql"),
        servers: None,
    },
];

/// A caller that has waited so long is told; the append may still happen.
const PATIENCE: Duration = Duration::from_secs(5);

/// See the module.
pub struct EmbeddedLog {
    store: Store,
    clock: Clock,
    sink: Arc<dyn Sink>,
    /// For whoever waits for follow-ups.
    news: Arc<Notify>,
    memberships: Arc<MembershipVersions>,
}

impl EmbeddedLog {
    /// Keeps at most so many idempotency keys, whatever their age.
    pub fn start(
        store: Store,
        most_keys: u64,
        clock: Clock,
        sink: Arc<dyn Sink>,
        supervisor: &Supervisor,
    ) -> Self {
        upkeep::start(store.clone(), most_keys, clock.clone(), supervisor);
        Self { store, clock, sink, news: Arc::default(), memberships: Arc::default() }
    }

    /// What this log writes down for people.
    pub fn follow_ups(&self) -> EmbeddedFollowUps {
        EmbeddedFollowUps { store: self.store.clone(), news: self.news.clone() }
    }
}

impl Log for EmbeddedLog {
    fn append(&self, events: Vec<Append>) -> Boxed<'_, Result<Vec<Result<Appended, AppendError>>, LogError>> {
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
                news: self.news.clone(),
                memberships: self.memberships.clone(),
                reply,
                accepted: Instant::now(),
            };
            let appended = async {
                self.store.writer().submit(Box::new(job)).await?;
                answer.await.unwrap_or(Err(Error::Closed))
            };
            match tokio::time::timeout(PATIENCE, appended).await {
                Ok(outcome) => outcome.map_err(LogError::from),
                Err(_) => Err(LogError::TimedOut),
            }
        })
    }

    fn read(&self, subject: &SubjectName, after: StreamId, most: Most) -> Boxed<'_, Result<Page, LogError>> {
        let subject = subject.clone();
        Box::pin(async move {
            let page =
                self.store.readers().read(move |connection| read::page(connection, &subject, after, most));
            Ok(page.await?)
        })
    }

    fn head(&self, subject: &SubjectName) -> Boxed<'_, Result<Place, LogError>> {
        let subject = subject.clone();
        Box::pin(async move {
            Ok(self.store.readers().read(move |connection| read::head(connection, &subject)).await?)
        })
    }

    fn purge(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>> {
        let subject = subject.clone();
        Box::pin(async move {
            self.store.write(move |connection| append::purge(connection, &subject)).await?;
            Ok(())
        })
    }

    fn membership_version(&self, subject: &SubjectName) -> Boxed<'_, Result<u64, LogError>> {
        Box::pin(std::future::ready(Ok(self.memberships.current(subject))))
    }

    fn change_membership_version(&self, subject: &SubjectName) -> Boxed<'_, Result<(), LogError>> {
        self.memberships.change(subject);
        Box::pin(std::future::ready(Ok(())))
    }

    fn trouble(&self) -> Option<&'static str> {
        self.store.writer().trouble()
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

/// SQLite's integers are signed. A number that does not fit belongs to no event of ours.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
