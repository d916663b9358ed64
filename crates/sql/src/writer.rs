//! The one thread that writes, with group commit.
//!
//! While one group is being synced, the next one gathers; each group is one transaction, and a job is told that it
//! was committed only after the sync. Jobs of a group are applied, and told, in the order in which they came. A job
//! that fails on its own is left out and the others go on; when the store itself fails, all are told and nothing
//! of the group is kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

use bongsu_kernel::crash_point;
use rusqlite::Connection;
use tokio::sync::mpsc;

use crate::Error;

/// Work that is done within a group's transaction.
pub trait Job: Send {
    /// Does it. May be called again, after everything the first call did was rolled back.
    fn apply(&mut self, connection: &Connection) -> Result<(), Error>;
    /// It is durable.
    fn committed(self: Box<Self>);
    /// Nothing of it was kept.
    fn failed(self: Box<Self>, error: &Error);
}

/// So many jobs may wait; who comes after that waits for a place.
const QUEUE: usize = 4_096;
/// So many jobs share a transaction at most: it bounds what a crash interrupts and how long the first one waits.
const GROUP: usize = 1_024;

/// Hands jobs to the writer thread. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    /// Nothing: the end.
    queue: mpsc::Sender<Option<Box<dyn Job>>>,
    health: Arc<Health>,
}

#[derive(Default)]
struct Health {
    full: AtomicBool,
    failing: AtomicBool,
}

/// The thread itself, for joining it at shutdown.
pub struct WriterState(JoinHandle<()>);

impl WriterState {
    /// Waits until everything that was handed over before [`Writer::close`] is done.
    pub fn join(self) {
        if self.0.join().is_err() {
            tracing::error!("the database writer had failed");
        }
    }
}

impl Writer {
    pub(crate) fn start(
        connection: Connection,
        died: impl FnOnce() + Send + 'static,
    ) -> Result<(Self, WriterState), Error> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let health = Arc::new(Health::default());
        let watched = health.clone();
        let thread = std::thread::Builder::new()
            .name("database-writer".to_owned())
            .spawn(move || {
                let alarm = Alarm(Some(died));
                run(&connection, jobs, &watched);
                alarm.disarm();
            })
            .map_err(|error| Error::Failed(error.to_string()))?;
        Ok((Self { queue, health }, WriterState(thread)))
    }

    /// Queues a job. It hears itself how it went.
    pub async fn submit(&self, job: Box<dyn Job>) -> Result<(), Error> {
        self.queue.send(Some(job)).await.map_err(|_| Error::Closed)
    }

    /// Takes no more jobs, and ends the thread once those it has are done.
    pub async fn close(&self) {
        // An error means that it has ended already.
        let _ = self.queue.send(None).await;
    }

    /// What is wrong with the store right now, if anything.
    pub fn trouble(&self) -> Option<&'static str> {
        if self.health.full.load(Ordering::Relaxed) {
            Some("the disk of the data folder is full")
        } else if self.health.failing.load(Ordering::Relaxed) {
            Some("the database fails to write")
        } else {
            None
        }
    }
}

/// Tells of a writer that ended by a panic.
struct Alarm<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> Alarm<F> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for Alarm<F> {
    fn drop(&mut self) {
        if let Some(died) = self.0.take() {
            died();
        }
    }
}

fn run(connection: &Connection, mut queue: mpsc::Receiver<Option<Box<dyn Job>>>, health: &Health) {
    let commits = metrics::counter!("store_commits_total");
    let seconds = metrics::histogram!("store_commit_duration_seconds");
    let (mut arrived, mut open) = (Vec::with_capacity(GROUP), true);
    while open && queue.blocking_recv_many(&mut arrived, GROUP) > 0 {
        let mut group = Vec::with_capacity(arrived.len());
        for job in arrived.drain(..) {
            match job {
                Some(job) if open => group.push(job),
                Some(late) => late.failed(&Error::Closed),
                None => open = false,
            }
        }
        if group.is_empty() {
            continue;
        }
        let started = Instant::now();
        let before = connection.total_changes();
        let (kept, outcome) = apply_group(connection, group);
        match outcome {
            Ok(()) => {
                crash_point!("after-commit");
                // A group that changed nothing had nothing to sync, and shows nothing of the disk.
                if connection.total_changes() != before {
                    health.full.store(false, Ordering::Relaxed);
                    health.failing.store(false, Ordering::Relaxed);
                    commits.increment(1);
                    seconds.record(started.elapsed().as_secs_f64());
                }
                for job in kept {
                    job.committed();
                }
                crash_point!("after-answer");
            }
            Err(error) => {
                let was_well = !health.failing.swap(true, Ordering::Relaxed);
                health.full.store(matches!(error, Error::Full), Ordering::Relaxed);
                if was_well {
                    tracing::error!(%error, "the database fails to write");
                }
                for job in kept {
                    job.failed(&error);
                }
            }
        }
    }
    // The file is left whole in itself; a failure here costs nothing, the log beside it is read at the next start.
    let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
}

/// Applies and commits a group. Gives back the jobs that share its outcome; a job that failed on its own has been
/// told already.
fn apply_group(
    connection: &Connection,
    mut jobs: Vec<Box<dyn Job>>,
) -> (Vec<Box<dyn Job>>, Result<(), Error>) {
    loop {
        match try_group(connection, &mut jobs) {
            Ok(()) => return (jobs, Ok(())),
            Err((culprit, error)) => {
                // The transaction may have been rolled back by the engine itself; then this says so, harmlessly.
                let _ = connection.execute_batch("ROLLBACK");
                match culprit {
                    Some(culprit) if !error.concerns_all() && jobs.len() > 1 => {
                        jobs.remove(culprit).failed(&error);
                    }
                    _ => return (jobs, Err(error)),
                }
            }
        }
    }
}

fn try_group(connection: &Connection, jobs: &mut [Box<dyn Job>]) -> Result<(), (Option<usize>, Error)> {
    let whole = |error: rusqlite::Error| (None, Error::from(error));
    connection.execute_batch("BEGIN IMMEDIATE").map_err(whole)?;
    for (at, job) in jobs.iter_mut().enumerate() {
        job.apply(connection).map_err(|error| (Some(at), error))?;
        crash_point!("within-group");
    }
    crash_point!("before-commit");
    connection.execute_batch("COMMIT").map_err(whole)
}
