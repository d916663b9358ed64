//! The one thread that writes, with group commit.
//!
//! While one group is being synced, the next one gathers; each group is one transaction, and a job is told that it
//! was committed only after the sync. Jobs of a group are applied, and told, in the order in which they came. A job
//! that fails on its own is left out and the others go on; when the store itself fails, all are told and nothing
//! of the group is kept.

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

/// Work that is done within a group's transaction.
pub trait Job: Send {
    /// Does it. May be called again, after everything the first call did was rolled back.
    fn apply(&mut self, connection: &mut Connection) -> Result<(), Error>;
    /// It is durable.
    fn committed(self: Box<Self>);
    /// Nothing of it was kept.
    fn failed(self: Box<Self>, error: &Error);
}

/// So many jobs may wait; who comes after that waits for a place.
const QUEUE: usize = 4_096;
/// So many jobs share a transaction at most: it bounds what a crash interrupts and how long the first one waits.
const GROUP: usize = 1_024;

/// A group that takes longer than this hangs on the disk.
const STUCK_MS: u64 = 3_000;

/// Hands jobs to the writer thread. Cheap to clone.
#[derive(Clone)]
pub struct Writer {
    /// Nothing: the end.
    queue: mpsc::Sender<Option<Box<dyn Job>>>,
    health: Arc<Health>,
}

struct Health {
    full: AtomicBool,
    failing: AtomicBool,
    started: Instant,
    /// Since when the group at hand is worked on, in milliseconds after the start; 0 between groups.
    busy_since: AtomicU64,
}

impl Health {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }

    /// The disk has not answered for so long that waiting for it would be a hang.
    fn is_stuck(&self) -> bool {
        let since = self.busy_since.load(Ordering::Relaxed);
        since != 0 && self.now().saturating_sub(since) > STUCK_MS
    }
}

/// The thread itself, for joining it at shutdown.
pub struct WriterState(JoinHandle<()>);

impl WriterState {
    /// Waits until everything that was handed over before [`Writer::close`] is done, but not longer than `patience`:
    /// a disk that does not answer must not keep the process. False when something was left.
    pub fn join(self, patience: Duration) -> bool {
        let started = Instant::now();
        while !self.0.is_finished() {
            if started.elapsed() > patience {
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
        died: impl FnOnce() + Send + 'static,
    ) -> Result<(Self, WriterState), Error> {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let health = Arc::new(Health {
            full: AtomicBool::new(false),
            failing: AtomicBool::new(false),
            started: Instant::now(),
            busy_since: AtomicU64::new(0),
        });
        let watched = health.clone();
        let thread = std::thread::Builder::new()
            .name("database-writer".to_owned())
            .spawn(move || {
                let alarm = Alarm(Some(died));
                run(&mut connection, &file, jobs, &watched);
                alarm.disarm();
            })
            .map_err(|error| Error::Failed(error.to_string()))?;
        Ok((Self { queue, health }, WriterState(thread)))
    }

    /// Queues a job. It hears itself how it went.
    pub async fn submit(&self, job: Box<dyn Job>) -> Result<(), Error> {
        self.queue.send(Some(job)).await.map_err(|_| Error::Closed)
    }

    /// Whether the disk has not answered for some seconds. What is handed over now may wait for long.
    pub fn is_stuck(&self) -> bool {
        self.health.is_stuck()
    }

    /// Takes no more jobs, and ends the thread once those it has are done.
    pub async fn close(&self) {
        // An error means that it has ended already.
        let _ = self.queue.send(None).await;
    }

    /// What is wrong with the store right now, if anything.
    pub fn trouble(&self) -> Option<&'static str> {
        if self.is_stuck() {
            Some("the disk of the data folder does not answer")
        } else if self.health.full.load(Ordering::Relaxed) {
            Some("the disk of the data folder is full")
        } else if self.health.failing.load(Ordering::Relaxed) {
            Some("the database fails to write")
        } else {
            None
        }
    }
}

/// The database file as it was opened. Removed or replaced by hand it would still take writes, for nobody.
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

fn run(
    connection: &mut Connection,
    file: &OpenFile,
    mut queue: mpsc::Receiver<Option<Box<dyn Job>>>,
    health: &Health,
) {
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
        health.busy_since.store(health.now(), Ordering::Relaxed);
        let (kept, outcome) = apply_group(connection, file, group);
        health.busy_since.store(0, Ordering::Relaxed);
        match outcome {
            Ok(synced) => {
                crash_point!("after-commit");
                if synced {
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

/// Applies and commits a group. Gives back the jobs that share its outcome, which is whether anything was synced; a
/// job that failed on its own has been told already.
fn apply_group(
    connection: &mut Connection,
    file: &OpenFile,
    mut jobs: Vec<Box<dyn Job>>,
) -> (Vec<Box<dyn Job>>, Result<bool, Error>) {
    loop {
        match try_group(connection, file, &mut jobs) {
            Ok(synced) => return (jobs, Ok(synced)),
            Err((culprit, error)) => {
                // The transaction may have been rolled back by the engine itself; then this says so, harmlessly.
                let _ = connection.execute_batch("ROLLBACK");
                match culprit {
                    // What undoes itself says nothing of the store, also when it is alone.
                    Some(culprit)
                        if matches!(error, Error::Undone) || (!error.concerns_all() && jobs.len() > 1) =>
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
    let whole = |error: rusqlite::Error| (None, Error::from(error));
    file.check().map_err(|error| (None, error))?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(whole)?;
    // Counted here: what an earlier attempt changed and took back is in the engine's count, but never on the disk.
    let before = connection.total_changes();
    for (at, job) in jobs.iter_mut().enumerate() {
        job.apply(connection).map_err(|error| (Some(at), error))?;
        crash_point!("within-group");
    }
    crash_point!("before-commit");
    connection.execute_batch("COMMIT").map_err(whole)?;
    // A group that changed nothing had nothing to sync, and shows nothing of the disk.
    Ok(connection.total_changes() != before)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc as std_mpsc;

    use super::*;

    /// Inserts a number; a negative one violates the table's rule.
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

    /// Some file that stays.
    fn file() -> OpenFile {
        OpenFile::of(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap()
    }

    fn stored(connection: &Connection) -> Vec<i64> {
        let mut statement = connection.prepare("SELECT n FROM numbers ORDER BY n").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn a_job_that_fails_on_its_own_is_left_out_and_the_others_are_kept() {
        let mut connection = numbers();
        let (told, heard) = std_mpsc::channel();
        let group: Vec<Box<dyn Job>> =
            [1, -1, 2, -2, 3].map(|n| Box::new(Insert(n, told.clone())) as Box<dyn Job>).into();
        let (kept, outcome) = apply_group(&mut connection, &file(), group);
        assert!(outcome.is_ok());
        kept.into_iter().for_each(Job::committed);
        drop(told);
        assert_eq!(
            heard.iter().collect::<Vec<_>>(),
            [(-1, false), (-2, false), (1, true), (2, true), (3, true)]
        );
        assert_eq!(stored(&connection), [1, 2, 3]);
    }

    /// Inserts, and takes it back.
    struct Undoes;

    impl Job for Undoes {
        fn apply(&mut self, connection: &mut Connection) -> Result<(), Error> {
            connection.execute("INSERT INTO numbers VALUES (1)", [])?;
            Err(Error::Undone)
        }

        fn committed(self: Box<Self>) {}

        fn failed(self: Box<Self>, _: &Error) {}
    }

    #[test]
    fn a_group_is_synced_if_anything_of_it_stays() {
        let (told, _heard) = std_mpsc::channel();
        let mut connection = numbers();
        assert!(matches!(apply_group(&mut connection, &file(), vec![Box::new(Undoes)]).1, Ok(false)));
        let group: Vec<Box<dyn Job>> = vec![Box::new(Undoes), Box::new(Insert(2, told))];
        assert!(matches!(apply_group(&mut connection, &file(), group).1, Ok(true)));
        assert_eq!(stored(&connection), [2]);
    }

    #[test]
    fn when_the_store_is_full_nothing_of_the_group_is_kept() {
        let mut connection = numbers();
        let pages: i64 = connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        connection.pragma_update(None, "max_page_count", pages + 1).unwrap();
        let (told, heard) = std_mpsc::channel();
        let group = (0..5_000).map(|n| Box::new(Insert(n, told.clone())) as Box<dyn Job>).collect();
        let (kept, outcome) = apply_group(&mut connection, &file(), group);
        assert!(matches!(outcome, Err(Error::Full)), "{outcome:?}");
        assert_eq!(kept.len(), 5_000, "all share the outcome");
        assert!(heard.try_recv().is_err(), "nobody was told otherwise");
        assert_eq!(stored(&connection), [0_i64; 0]);
    }

    #[test]
    fn a_file_that_was_replaced_takes_nothing_any_more() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let (mut connection, file) = (numbers(), OpenFile::of(&path).unwrap());
        let (told, _heard) = std_mpsc::channel();
        let group = || vec![Box::new(Insert(1, told.clone())) as Box<dyn Job>];
        assert!(apply_group(&mut connection, &file, group()).1.is_ok());
        std::fs::rename(&path, dir.path().join("old")).unwrap();
        assert!(apply_group(&mut connection, &file, group()).1.is_err(), "it is gone");
        std::fs::write(&path, "two").unwrap();
        assert!(apply_group(&mut connection, &file, group()).1.is_err(), "it is another");
        assert_eq!(stored(&connection), [1]);
    }

    #[tokio::test]
    async fn what_was_handed_over_before_the_end_is_done_and_what_comes_after_is_refused() {
        let (writer, thread) = Writer::start(numbers(), file(), || panic!("no alarm")).unwrap();
        let (told, heard) = std_mpsc::channel();
        for n in 0..100 {
            writer.submit(Box::new(Insert(n, told.clone()))).await.unwrap();
        }
        writer.close().await;
        assert!(thread.join(Duration::from_secs(10)));
        assert!(writer.submit(Box::new(Insert(100, told))).await.is_err());
        assert_eq!(heard.iter().collect::<Vec<_>>(), (0..100).map(|n| (n, true)).collect::<Vec<_>>());
    }
}
