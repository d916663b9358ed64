//! The embedded log: the contract, and what only this adapter promises (a bounded number of keys, one holder).

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_live::log::embedded::{EmbeddedLog, MIGRATIONS};
use bongsu_live::log::{FollowUps, Sink};
use bongsu_live::{Log, LogError};
use bongsu_sql::rusqlite::Connection;
use bongsu_sql::{DataFolder, Database, Error, Migrations, Store, WriterState};
use bongsu_testkit::wait;
use tempfile::TempDir;

use crate::log_contract::support::{Event, NOW, Stage, appended};
use crate::log_contract::{Adapter, contract};

contract!(EmbeddedAdapter);

const LONG: Duration = Duration::from_secs(60);

/// A data folder.
pub(crate) struct EmbeddedAdapter {
    folder: TempDir,
    most_keys: u64,
}

/// An open log and what belongs to it.
pub(crate) struct Running {
    log: Arc<EmbeddedLog>,
    store: Store,
    writer: WriterState,
    supervisor: Supervisor,
}

impl EmbeddedAdapter {
    fn with_most_keys(most_keys: u64) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), most_keys }
    }

    /// A copy of a folder as it is on the disk now.
    pub(crate) fn copy_of(folder: &std::path::Path) -> Self {
        let copy = Self::with_most_keys(1_000_000);
        for file in std::fs::read_dir(folder).unwrap().flatten() {
            // SQLite makes this one anew from the log beside the database.
            if !file.file_name().to_string_lossy().ends_with("-shm") {
                std::fs::copy(file.path(), copy.folder.path().join(file.file_name())).unwrap();
            }
        }
        copy
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    fn database(&self) -> Result<Database, Error> {
        Database::open(DataFolder::take(self.folder.path())?, &Migrations::new([MIGRATIONS]))
    }
}

impl Adapter for EmbeddedAdapter {
    type Running = Running;

    async fn empty() -> Self {
        Self::with_most_keys(1_000_000)
    }

    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Running {
        let supervisor = Supervisor::new();
        let (store, writer) = Store::start(self.database().unwrap(), &supervisor).unwrap();
        let log = Arc::new(EmbeddedLog::start(store.clone(), self.most_keys, clock, sink, &supervisor));
        Running { log, store, writer, supervisor }
    }

    fn log(running: &Running) -> Arc<dyn Log> {
        running.log.clone()
    }

    fn seen_to(running: &Running) -> Arc<dyn FollowUps> {
        Arc::new(running.log.follow_ups())
    }

    async fn close(&self, running: Running) {
        running.store.writer().close().await;
        let Running { log, writer, supervisor, .. } = running;
        assert!(supervisor.shut_down(Duration::from_secs(60)).await, "a loop was left");
        tokio::task::spawn_blocking(|| assert!(writer.join(Duration::from_secs(60)))).await.unwrap();
        assert_eq!(Arc::strong_count(&log), 1, "somebody still holds the log");
    }

    /// Goes on with a copy of the files as the kernel has them at this moment, which is what a kill leaves. Only
    /// afterwards the log may tidy up, in the folder that nobody looks at again.
    async fn kill(&mut self, running: Running) {
        let left = Self { most_keys: self.most_keys, ..Self::copy_of(self.folder.path()) };
        self.close(running).await;
        *self = left;
    }

    async fn follow_ups(&self) -> Vec<String> {
        let connection = Connection::open(self.folder.path().join("bongsu.db")).unwrap();
        let mut statement = connection.prepare("SELECT record FROM follow_ups ORDER BY id").unwrap();
        let records = statement.query_map([], |row| row.get(0)).unwrap();
        records.collect::<Result<_, _>>().unwrap()
    }
}

#[tokio::test]
async fn past_the_limit_of_keys_the_oldest_go_early_and_the_newest_stay() {
    let stage = Stage::at(EmbeddedAdapter::with_most_keys(100)).await;
    let keyed = |number: u64| Event::of("room").number(number).key(&format!("key {number}"));
    for number in 0..300 {
        stage.append_one(&keyed(number)).await;
    }
    // Asking with a key that is still there changes nothing; the sweep comes every second.
    let is_gone = wait::holds_within(LONG, async || !stage.append_one(&keyed(0)).await.duplicate);
    assert!(is_gone.await, "the oldest key of 300 is still there, though 100 are kept");
    for number in 250..300 {
        assert!(stage.append_one(&keyed(number)).await.duplicate, "key {number} is among the newest 100");
    }
}

#[tokio::test]
async fn keys_that_ran_out_are_swept_from_the_file() {
    let stage = Stage::at(EmbeddedAdapter::empty().await).await;
    for number in 0..20 {
        stage.append_one(&Event::of("room").number(number).key(&format!("key {number}"))).await;
    }
    let file = stage.adapter().folder().join("bongsu.db");
    let keys = || {
        let connection = Connection::open(&file).unwrap();
        connection.query_row("SELECT count(*) FROM idempotency", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(keys(), 20);
    stage.clock.set(NOW + 25 * 60 * 60 * 1_000);
    assert!(wait::holds_within(LONG, async || keys() == 0).await, "{} keys are left", keys());
}

#[tokio::test]
async fn a_folder_is_held_by_one_log_and_free_after_it() {
    let mut stage = Stage::at(EmbeddedAdapter::empty().await).await;
    stage.append_one(&Event::of("room")).await;
    let second = stage.adapter().database().err();
    assert!(matches!(second, Some(Error::InUse(..))), "a second log opened the folder");
    stage.reopen().await;
    assert_eq!(stage.ids("room").await.len(), 1);
}

#[tokio::test]
async fn a_healthy_log_names_no_trouble() {
    let stage = Stage::at(EmbeddedAdapter::empty().await).await;
    let answers = stage.append(vec![Event::of("room"), Event::of("hall")]).await;
    assert!(answers.iter().all(|answer| !appended(answer).duplicate));
    assert_eq!(stage.log().trouble(), None);
}

#[tokio::test]
async fn a_closed_log_takes_nothing_and_says_so() {
    let mut stage = Stage::at(EmbeddedAdapter::empty().await).await;
    stage.append(vec![Event::of("42"); 3]).await;
    let before = stage.ids("42").await;
    stage.running().store.writer().close().await;
    let late = stage.try_append(vec![Event::of("42")]).await;
    assert!(matches!(late, Err(LogError::Failed(_))), "{late:?}");
    // What is there can still be read by those who are about to leave.
    assert_eq!(stage.ids("42").await, before);
    stage.reopen().await;
    assert_eq!(stage.ids("42").await, before);
    assert_eq!(stage.sink.of("42").len(), 3);
}
