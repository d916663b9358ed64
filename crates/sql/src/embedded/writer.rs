//! The only thread that writes, with group commit.
//!
//! Each group of jobs is one transaction; while it is being synced, the next group gathers. The thread applies the jobs
//! in the order of their submission, and reports them as committed in the same order, after the sync. A job that fails
//! by itself is removed from its group and the others go on. When the store itself fails, no job of the group is
//! stored and all of them are reported as failed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bongsu_kernel::crash_point;
use rusqlite::Connection;
use tokio::sync::mpsc;

use crate::Error;

/// A unit of work in a group's transaction.
pub trait Job: Send {
    /// Does the work. May be called again after the first call was rolled back.
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error>;
    /// Reports that the work is durable.
    fn committed(self: Box<Self>);
    /// Reports that no part of the work is stored.
    fn failed(self: Box<Self>, error: &Error);
}

/// Maximum number of jobs in the queue; `submit` waits while the queue is full.
const QUEUE_SIZE: usize = 4_096;
/// Maximum number of jobs in one transaction. Limits how many jobs a crash interrupts, and how long the first
/// one waits.
const MAX_GROUP_SIZE: usize = 1_024;

/// Time after which a group counts as stuck on the disk.
const STUCK_AFTER_MS: u64 = 3_000;

/// Hands jobs to the writer thread. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    /// None ends the thread.
    queue: mpsc::Sender<Option<Box<dyn Job>>>,
    health: Arc<Health>,
}

struct Health {
    is_full: AtomicBool,
    is_failing: AtomicBool,
    started: Instant,
    /// When the current group began, in milliseconds after `started`; 0 between groups.
    busy_since: AtomicU64,
}

impl Health {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// Whether the current group has been waiting for the disk for longer than `STUCK_AFTER_MS`.
    fn is_stuck(&self) -> bool {
        let since = self.busy_since.load(Ordering::Relaxed);
        since != 0 && self.now().saturating_sub(since) > STUCK_AFTER_MS
    }
}

/// The handle for joining the thread at shutdown.
pub struct WriterThread(JoinHandle<()>);

impl WriterThread {
    /// Waits up to `timeout` until all jobs that were submitted before [`Writer::close`] are done. Returns false when
    /// the timeout has passed, because the disk does not answer, or when the thread panicked.
    pub fn join(self, timeout: Duration) -> bool {
        let started = Instant::now();
        while !self.0.is_finished() {
            if started.elapsed() > timeout {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.0.join().is_ok()
    }
}

impl Writer {
    pub(crate) fn start(
        mut connection: Connection,
        file: OpenFile,
        on_panic: impl FnOnce() + Send + 'static,
    ) -> Result<(Self, WriterThread), Error> {
        let (queue, jobs) = mpsc::channel(QUEUE_SIZE);
        let health = Arc::new(Health {
            is_full: AtomicBool::new(false),
            is_failing: AtomicBool::new(false),
            started: Instant::now(),
            busy_since: AtomicU64::new(0),
        });
        let thread_health = health.clone();
        let thread = std::thread::Builder::new()
            .name("database-writer".to_owned())
            .spawn(move || {
                let guard = PanicGuard(Some(on_panic));
                run(&mut connection, &file, jobs, &thread_health);
                guard.disarm();
            })
            .map_err(|error| Error::Failed(error.to_string()))?;
        Ok((Self { queue, health }, WriterThread(thread)))
    }

    /// Queues a job. The outcome is reported to the job itself.
    pub async fn submit(&self, job: Box<dyn Job>) -> Result<(), Error> {
        self.queue.send(Some(job)).await.map_err(|_| Error::Closed)
    }

    /// Whether the disk has not answered for more than three seconds. A job that is submitted now may wait long.
    pub fn is_stuck(&self) -> bool {
        self.health.is_stuck()
    }

    /// Refuses further jobs, and ends the thread once the queued ones are done.
    pub async fn close(&self) {
        // An error means that the thread has ended already.
        let _ = self.queue.send(None).await;
    }

    /// Why the store cannot be written at the moment. None while it works.
    pub fn outage(&self) -> Option<&'static str> {
        if self.is_stuck() {
            Some("the disk of the data folder does not answer")
        } else if self.health.is_full.load(Ordering::Relaxed) {
            Some("the disk of the data folder is full")
        } else if self.health.is_failing.load(Ordering::Relaxed) {
            Some("writes to the database fail")
        } else {
            None
        }
    }
}

/// The identity of the open database file. After the file was removed or replaced by hand, writes would still succeed,
/// but be lost.
pub(crate) struct OpenFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl OpenFile {
    pub(crate) fn of(path: &Path) -> Result<Self, Error> {
        Ok(Self { path: path.to_owned(), identity: Self::identity(path)? })
    }

    fn identity(path: &Path) -> Result<(u64, u64), Error> {
        let file =
            std::fs::metadata(path).map_err(|error| Error::Unusable(path.to_owned(), error.to_string()))?;
        Ok((file.dev(), file.ino()))
    }

    fn check(&self) -> Result<(), Error> {
        if Self::identity(&self.path)? == self.identity {
            return Ok(());
        }
        Err(Error::Unusable(self.path.clone(), "the file was replaced while it was open".to_owned()))
    }
}

/// Calls a function when the thread ends by a panic.
struct PanicGuard<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> PanicGuard<F> {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for PanicGuard<F> {
    fn drop(&mut self) {
        if let Some(on_panic) = self.0.take() {
            on_panic();
        }
    }
}

fn run(
    connection: &mut Connection,
    file: &OpenFile,
    mut queue: mpsc::Receiver<Option<Box<dyn Job>>>,
    health: &Health,
) {
    let commits = metrics::counter!("store_commits_total");
    let seconds = metrics::histogram!("store_commit_duration_seconds");
    let (mut received, mut is_open) = (Vec::with_capacity(MAX_GROUP_SIZE), true);
    while is_open && queue.blocking_recv_many(&mut received, MAX_GROUP_SIZE) > 0 {
        let mut group = Vec::with_capacity(received.len());
        for job in received.drain(..) {
            match job {
                Some(job) if is_open => group.push(job),
                Some(job) => job.failed(&Error::Closed),
                None => is_open = false,
            }
        }
        if group.is_empty() {
            continue;
        }
        let started = Instant::now();
        health.busy_since.store(health.now(), Ordering::Relaxed);
        let (jobs, outcome) = apply_group(connection, file, group);
        health.busy_since.store(0, Ordering::Relaxed);
        match outcome {
            Ok(is_synced) => {
                crash_point!("after-commit");
                if is_synced {
                    health.is_full.store(false, Ordering::Relaxed);
                    health.is_failing.store(false, Ordering::Relaxed);
                    commits.increment(1);
                    seconds.record(started.elapsed().as_secs_f64());
                }
                for job in jobs {
                    job.committed();
                }
                crash_point!("after-answer");
            }
            Err(error) => {
                let was_failing = health.is_failing.swap(true, Ordering::Relaxed);
                health.is_full.store(matches!(error, Error::Full), Ordering::Relaxed);
                if !was_failing {
                    tracing::error!(%error, "failed to write to the database; the changes are not stored");
                }
                for job in jobs {
                    job.failed(&error);
                }
            }
        }
    }
    // Moves the write-ahead log into the file. If this fails, the next start reads the log.
    let _ = connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)");
}

/// Applies and commits a group. Returns the jobs that share its outcome, and whether anything was synced. Jobs that
/// failed by themselves were reported already.
fn apply_group(
    connection: &mut Connection,
    file: &OpenFile,
    mut jobs: Vec<Box<dyn Job>>,
) -> (Vec<Box<dyn Job>>, Result<bool, Error>) {
    loop {
        match try_group(connection, file, &mut jobs) {
            Ok(is_synced) => return (jobs, Ok(is_synced)),
            Err((culprit, error)) => {
                // Fails without harm when SQLite has rolled the transaction back by itself.
                let _ = connection.execute_batch("ROLLBACK");
                match culprit {
                    // A job that asks for its rollback is no failure of the store, even when the job is alone
                    // in its group.
                    Some(culprit)
                        if matches!(error, Error::RolledBack)
                            || (!error.is_store_failure() && jobs.len() > 1) =>
                    {
                        jobs.remove(culprit).failed(&error);
                    }
                    _ => return (jobs, Err(error)),
                }
            }
        }
    }
}

fn try_group(
    connection: &mut Connection,
    file: &OpenFile,
    jobs: &mut [Box<dyn Job>],
) -> Result<bool, (Option<usize>, Error)> {
    let store_error = |error: rusqlite::Error| (None, Error::from(error));
    file.check().map_err(|error| (None, error))?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(store_error)?;
    // Read for each attempt, because SQLite's count includes changes that were rolled back.
    let before = connection.total_changes();
    for (index, job) in jobs.iter_mut().enumerate() {
        job.apply(connection).map_err(|error| (Some(index), error))?;
        crash_point!("within-group");
    }
    crash_point!("before-commit");
    connection.execute_batch("COMMIT").map_err(store_error)?;
    // A group without changes syncs nothing, so it does not show whether the disk works.
    Ok(connection.total_changes() != before)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;

    /// Inserts a number. A negative number violates the table's CHECK.
    struct Insert(i64, std_mpsc::Sender<(i64, bool)>);

    impl Job for Insert {
        fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
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

    /// A file that is not removed during the test.
    fn file() -> OpenFile {
        OpenFile::of(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn stored(connection: &Connection) -> Vec<i64> {
        let mut statement = connection.prepare("SELECT n FROM numbers ORDER BY n").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_failed_job_is_left_out_and_the_others_are_committed() {
        let mut connection = numbers();
        let (reports, reported) = std_mpsc::channel();
        let group: Vec<Box<dyn Job>> =
            [1, -1, 2, -2, 3].map(|n| Box::new(Insert(n, reports.clone())) as Box<dyn Job>).into();
        let (jobs, outcome) = apply_group(&mut connection, &file(), group);
        assert!(outcome.is_ok());
        jobs.into_iter().for_each(Job::committed);
        drop(reports);
        assert_eq!(
            reported.iter().collect::<Vec<_>>(),
            [(-1, false), (-2, false), (1, true), (2, true), (3, true)]
        );
        assert_eq!(stored(&connection), [1, 2, 3]);
    }

    /// Inserts a number and asks for a rollback.
    struct RolledBackInsert;

    impl Job for RolledBackInsert {
        fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
            connection.execute("INSERT INTO numbers VALUES (1)", [])?;
            Err(Error::RolledBack)
        }

        fn committed(self: Box<Self>) {}

        fn failed(self: Box<Self>, _: &Error) {}
    }

    #[test]
    fn a_group_is_synced_if_a_change_of_it_remains() {
        let (reports, _reported) = std_mpsc::channel();
        let mut connection = numbers();
        assert!(matches!(
            apply_group(&mut connection, &file(), vec![Box::new(RolledBackInsert)]).1,
            Ok(false)
        ));
        let group: Vec<Box<dyn Job>> = vec![Box::new(RolledBackInsert), Box::new(Insert(2, reports))];
        assert!(matches!(apply_group(&mut connection, &file(), group).1, Ok(true)));
        assert_eq!(stored(&connection), [2]);
    }

    #[test]
    fn a_full_disk_fails_the_whole_group() {
        let mut connection = numbers();
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        connection.pragma_update(None, "max_page_count", pages + 1).unwrap();
        let (reports, reported) = std_mpsc::channel();
        let group = (0..5_000).map(|n| Box::new(Insert(n, reports.clone())) as Box<dyn Job>).collect();
        let (jobs, outcome) = apply_group(&mut connection, &file(), group);
        assert!(matches!(outcome, Err(Error::Full)), "{outcome:?}");
        assert_eq!(jobs.len(), 5_000, "all jobs share the outcome");
        assert!(reported.try_recv().is_err(), "no job is reported by itself");
        assert_eq!(stored(&connection), [0_i64; 0]);
    }

    #[test]
    fn a_removed_or_replaced_file_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let (mut connection, file) = (numbers(), OpenFile::of(&path).unwrap());
        let (reports, _reported) = std_mpsc::channel();
        let group = || vec![Box::new(Insert(1, reports.clone())) as Box<dyn Job>];
        assert!(apply_group(&mut connection, &file, group()).1.is_ok());
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        assert!(apply_group(&mut connection, &file, group()).1.is_err(), "the file was removed");
        std::fs::write(&path, "two").unwrap();
        assert!(apply_group(&mut connection, &file, group()).1.is_err(), "another file has its name");
        assert_eq!(stored(&connection), [1]);
    }

    #[tokio::test]
    async fn jobs_submitted_before_close_are_done_and_later_ones_are_refused() {
        let (writer, thread) = Writer::start(numbers(), file(), || panic!("no alarm")).unwrap();
        let (reports, reported) = std_mpsc::channel();
        for n in 0..100 {
            writer.submit(Box::new(Insert(n, reports.clone()))).await.unwrap();
        }
        writer.close().await;
        assert!(thread.join(Duration::from_secs(10)));
        assert!(writer.submit(Box::new(Insert(100, reports))).await.is_err());
        assert_eq!(reported.iter().collect::<Vec<_>>(), (0..100).map(|n| (n, true)).collect::<Vec<_>>());
    }
}
