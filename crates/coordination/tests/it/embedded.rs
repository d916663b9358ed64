//! Runs the contracts on the embedded engine, and tests revocations in its file.

use std::sync::Arc;

use bongsu_coordination::MIGRATIONS;
use bongsu_coordination::access_commands::REVOCATION_RETENTION;
use bongsu_coordination::access_commands::embedded::EmbeddedAccessCommands;
use bongsu_coordination::lock::embedded::EmbeddedLocks;
use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::rusqlite::Connection;
use bongsu_sql::{DataFolder, Database, Migrations, Store, WriterThread};
use tempfile::TempDir;

use crate::contract;
use crate::hub::{CommandRecorder, Coordination, Engine, Hub, LEASE_TTL, WAIT_TIMEOUT, revoke};

contract!(Embedded);

/// The initial time of the manual clock, in milliseconds since 1970.
const NOW: u64 = 1_708_070_400_000;

/// A data folder, and the hub that is open on it.
struct Embedded {
    folder: TempDir,
    clock: Clock,
    open: Option<Open>,
}

struct Open {
    coordination: Coordination,
    recorder: Arc<CommandRecorder>,
    supervisor: Supervisor,
    store: Store,
    thread: WriterThread,
}

impl Embedded {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Clock::manual(NOW), open: None }
    }

    fn database(&self) -> Database {
        Database::open(DataFolder::take(self.folder.path()).unwrap(), &Migrations::new([MIGRATIONS])).unwrap()
    }

    async fn open(&self) -> Open {
        let supervisor = Supervisor::new();
        let (store, thread) = Store::start(self.database(), &supervisor).unwrap();
        let recorder = Arc::new(CommandRecorder::default());
        let commands =
            EmbeddedAccessCommands::open(store.clone(), self.clock.clone(), recorder.clone(), &supervisor);
        let coordination = Coordination {
            locks: Arc::new(EmbeddedLocks::new(LEASE_TTL)),
            access_commands: Arc::new(commands.await.unwrap()),
        };
        Open { coordination, recorder, supervisor, store, thread }
    }
}

impl Engine for Embedded {
    async fn start() -> Option<Self> {
        Some(Self::new())
    }

    async fn hub(&mut self) -> Hub {
        if self.open.is_none() {
            self.open = Some(self.open().await);
        }
        let Open { coordination, recorder, .. } = self.open.as_ref().unwrap();
        let (coordination, recorder) = (coordination.clone(), recorder.clone());
        Hub { coordination, recorder, supervisor: Supervisor::new(), process: None }
    }

    /// Continues with a copy of the files as the kernel has them now, as after a kill of the process.
    async fn kill(&mut self, hubs: Vec<Hub>) {
        let copy = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(self.folder.path()).unwrap().flatten() {
            // SQLite recreates this file from the write-ahead log.
            if !file.file_name().to_string_lossy().ends_with("-shm") {
                std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
            }
        }
        drop(hubs);
        if let Some(open) = self.open.take() {
            open.store.writer().close().await;
            assert!(open.supervisor.shut_down(WAIT_TIMEOUT).await);
            tokio::task::spawn_blocking(move || assert!(open.thread.join(WAIT_TIMEOUT))).await.unwrap();
        }
        self.folder = copy;
    }
}

#[tokio::test]
async fn a_revocation_is_kept_for_the_retention_time() {
    let mut engine = Embedded::new();
    let hub = engine.hub().await;
    hub.issue(revoke("anna", NOW)).await;
    let retention_ms = REVOCATION_RETENTION.as_millis() as u64;
    engine.clock.set(NOW + retention_ms - 1);
    engine.kill(vec![hub]).await;
    let hub = engine.hub().await;
    assert_eq!(hub.revoked("anna").await, Some(NOW));
    engine.clock.set(NOW + retention_ms);
    engine.kill(vec![hub]).await;
    assert_eq!(engine.hub().await.revoked("anna").await, None);
}

#[tokio::test]
async fn revocations_beyond_the_memory_limit_are_read_from_the_file() {
    let mut engine = Embedded::new();
    drop(engine.database());
    let mut file = Connection::open(engine.folder.path().join("bongsu.db")).unwrap();
    let rows = file.transaction().unwrap();
    for n in 0..100_003_u64 {
        rows.prepare_cached("INSERT INTO bongsu_revocations VALUES (?1, ?2, ?3)")
            .unwrap()
            .execute((format!("user{n}"), NOW as i64, NOW as i64 + 1_000))
            .unwrap();
    }
    rows.commit().unwrap();
    drop(file);
    let hub = engine.hub().await;
    for n in (0..100_003).step_by(5_000).chain(100_000..100_003) {
        assert_eq!(hub.revoked(&format!("user{n}")).await, Some(NOW), "user{n}");
    }
    assert_eq!(hub.revoked("user100003").await, None);
    for (user, issued_before) in [("user100002", NOW + 5), ("somebody", NOW + 6), ("user0", NOW + 7)] {
        hub.issue(revoke(user, issued_before)).await;
        assert_eq!(hub.revoked(user).await, Some(issued_before), "{user}");
    }
}
