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

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;

    /// Inserts a number; a negative one violates the table's rule.
    struct Insert(i64, std_mpsc::Sender<(i64, bool)>);

    impl Job for Insert {
        fn apply(&mut self, connection: &Connection) -> Result<(), Error> {
            connection.execute("INSERT INTO numbers VALUES (?1)", [self.0])?;
            Ok(())
        }

        fn committed(self: Box<Self>) {
            let _ = self.1.send((self.0, true));
        }

        fn failed(self: Box<Self>, _: &Error) {
            let _ = self.1.send((self.0, false));
        }
    }

    fn numbers() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE numbers (n INTEGER CHECK (n >= 0))").unwrap();
        connection
    }

    fn stored(connection: &Connection) -> Vec<i64> {
        let mut statement = connection.prepare("SELECT n FROM numbers ORDER BY n").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_job_that_fails_on_its_own_is_left_out_and_the_others_are_kept() {
        let connection = numbers();
        let (told, heard) = std_mpsc::channel();
        let group: Vec<Box<dyn Job>> =
            [1, -1, 2, -2, 3].map(|n| Box::new(Insert(n, told.clone())) as Box<dyn Job>).into();
        let (kept, outcome) = apply_group(&connection, group);
        assert!(outcome.is_ok());
        kept.into_iter().for_each(Job::committed);
        drop(told);
        assert_eq!(
            heard.iter().collect::<Vec<_>>(),
            [(-1, false), (-2, false), (1, true), (2, true), (3, true)]
        );
        assert_eq!(stored(&connection), [1, 2, 3]);
    }

    #[test]
    fn when_the_store_is_full_nothing_of_the_group_is_kept() {
        let connection = numbers();
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        connection.pragma_update(None, "max_page_count", pages + 1).unwrap();
        let (told, heard) = std_mpsc::channel();
        let group = (0..5_000).map(|n| Box::new(Insert(n, told.clone())) as Box<dyn Job>).collect();
        let (kept, outcome) = apply_group(&connection, group);
        assert!(matches!(outcome, Err(Error::Full)), "{outcome:?}");
        assert_eq!(kept.len(), 5_000, "all share the outcome");
        assert!(heard.try_recv().is_err(), "nobody was told otherwise");
        assert_eq!(stored(&connection), [0_i64; 0]);
    }

    #[tokio::test]
    async fn what_was_handed_over_before_the_end_is_done_and_what_comes_after_is_refused() {
        let (writer, thread) = Writer::start(numbers(), || panic!("no alarm")).unwrap();
        let (told, heard) = std_mpsc::channel();
        for n in 0..100 {
            writer.submit(Box::new(Insert(n, told.clone()))).await.unwrap();
        }
        writer.close().await;
        thread.join();
        assert!(writer.submit(Box::new(Insert(100, told))).await.is_err());
        assert_eq!(heard.iter().collect::<Vec<_>>(), (0..100).map(|n| (n, true)).collect::<Vec<_>>());
    }
}
