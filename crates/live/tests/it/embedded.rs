//! The embedded log: the contract of the port, and the guarantees of this adapter alone (a bounded number of
//! idempotency keys, one process per folder).

use std::sync::Arc;
use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_live::log::embedded::{EmbeddedLog, MIGRATIONS};
use bongsu_live::log::{FollowUps, Sink};
use bongsu_live::{Log, LogError};
use bongsu_sql::rusqlite::Connection;
use bongsu_sql::{DataFolder, Database, Error, Migrations, Store, WriterThread};
use bongsu_testkit::wait;
use tempfile::TempDir;

use crate::log_contract::support::{Event, LogFixture, NOW, appended};
use crate::log_contract::{Adapter, contract};

contract!(EmbeddedAdapter);

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A data folder in which a log can be opened.
pub(crate) struct EmbeddedAdapter {
    folder: TempDir,
    max_keys: u64,
}

/// An open log with its store, writer thread and loops.
pub(crate) struct Running {
    log: Arc<EmbeddedLog>,
    store: Store,
    writer: WriterThread,
    supervisor: Supervisor,
}

impl EmbeddedAdapter {
    fn with_max_keys(max_keys: u64) -> Self {
        Self { folder: tempfile::tempdir().unwrap(), max_keys }
    }

    /// A copy of the files of a folder.
    pub(crate) fn copy_of(folder: &std::path::Path) -> Self {
        let copy = Self::with_max_keys(1_000_000);
        for file in std::fs::read_dir(folder).unwrap().flatten() {
            // SQLite rebuilds this file from the write-ahead log.
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
        Self::with_max_keys(1_000_000)
    }

    async fn open(&self, clock: Clock, sink: Arc<dyn Sink>) -> Running {
        let supervisor = Supervisor::new();
        let (store, writer) = Store::start(self.database().unwrap(), &supervisor).unwrap();
        let log = Arc::new(EmbeddedLog::start(store.clone(), self.max_keys, clock, sink, &supervisor));
        Running { log, store, writer, supervisor }
    }

    fn log(running: &Running) -> Arc<dyn Log> {
        running.log.clone()
    }

    fn follow_ups(running: &Running) -> Arc<dyn FollowUps> {
        Arc::new(running.log.follow_ups())
    }

    async fn close(&self, running: Running) {
        running.store.writer().close().await;
        let Running { log, writer, supervisor, .. } = running;
        assert!(supervisor.shut_down(Duration::from_secs(60)).await, "a loop is still running");
        tokio::task::spawn_blocking(|| assert!(writer.join(Duration::from_secs(60)))).await.unwrap();
        assert_eq!(Arc::strong_count(&log), 1, "the log is still referenced");
    }

    /// Continues with a copy of the files as they are now, as a kill leaves them. The log in the old folder,
    /// which is not used again, is closed afterwards.
    async fn kill(&mut self, running: Running) {
        let copy = Self { max_keys: self.max_keys, ..Self::copy_of(self.folder.path()) };
        self.close(running).await;
        *self = copy;
    }

    async fn stored_follow_ups(&self) -> Vec<String> {
        let connection = Connection::open(self.folder.path().join("bongsu.db")).unwrap();
        let mut statement = connection.prepare("SELECT record FROM follow_ups ORDER BY id").unwrap();
        let records = statement.query_map([], |row| row.get(0)).unwrap();
        records.collect::<Result<_, _>>().unwrap()
    }
}

#[tokio::test]
async fn above_the_limit_the_oldest_keys_are_removed_early() {
    let fixture = LogFixture::at(EmbeddedAdapter::with_max_keys(100)).await;
    let keyed = |number: u64| Event::of("room").number(number).key(&format!("key {number}"));
    for number in 0..300 {
        fixture.append_one(&keyed(number)).await;
    }
    // Appending again with a key that is still stored has no effect. The sweep runs every second.
    let is_removed =
        wait::holds_within(WAIT_TIMEOUT, async || !fixture.append_one(&keyed(0)).await.duplicate);
    assert!(is_removed.await, "the oldest key of 300 is still stored, although the limit is 100");
    for number in 250..300 {
        assert!(fixture.append_one(&keyed(number)).await.duplicate, "key {number} is among the newest 100");
    }
}

#[tokio::test]
async fn expired_keys_are_removed_from_the_file() {
    let fixture = LogFixture::at(EmbeddedAdapter::empty().await).await;
    for number in 0..20 {
        fixture.append_one(&Event::of("room").number(number).key(&format!("key {number}"))).await;
    }
    let file = fixture.adapter().folder().join("bongsu.db");
    let keys = || {
        let connection = Connection::open(&file).unwrap();
        connection.query_row("SELECT count(*) FROM idempotency", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(keys(), 20);
    fixture.clock.set(NOW + 25 * 60 * 60 * 1_000);
    assert!(wait::holds_within(WAIT_TIMEOUT, async || keys() == 0).await, "{} keys are left", keys());
}

#[tokio::test]
async fn a_folder_is_used_by_one_log_at_a_time() {
    let mut fixture = LogFixture::at(EmbeddedAdapter::empty().await).await;
    fixture.append_one(&Event::of("room")).await;
    let second = fixture.adapter().database().err();
    assert!(matches!(second, Some(Error::InUse(..))), "a second log opened the folder");
    fixture.reopen().await;
    assert_eq!(fixture.ids("room").await.len(), 1);
}

#[tokio::test]
async fn a_healthy_log_reports_no_outage() {
    let fixture = LogFixture::at(EmbeddedAdapter::empty().await).await;
    let answers = fixture.append(vec![Event::of("room"), Event::of("hall")]).await;
    assert!(answers.iter().all(|answer| !appended(answer).duplicate));
    assert_eq!(fixture.log().outage(), None);
}

#[tokio::test]
async fn a_closed_log_refuses_appends_and_can_be_read() {
    let mut fixture = LogFixture::at(EmbeddedAdapter::empty().await).await;
    fixture.append(vec![Event::of("42"); 3]).await;
    let before = fixture.ids("42").await;
    fixture.running().store.writer().close().await;
    let late = fixture.try_append(vec![Event::of("42")]).await;
    assert!(matches!(late, Err(LogError::Failed(_))), "{late:?}");
    // Streams that are about to end can still read the log.
    assert_eq!(fixture.ids("42").await, before);
    fixture.reopen().await;
    assert_eq!(fixture.ids("42").await, before);
    assert_eq!(fixture.sink.of("42").len(), 3);
}
