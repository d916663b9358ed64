//! Coordination within one process: the contract, and what only the embedded file promises.

use std::sync::Arc;

use bongsu_coordination::MIGRATIONS;
use bongsu_coordination::lock::embedded::EmbeddedLocks;
use bongsu_coordination::orders::REVOCATION_LIFE;
use bongsu_coordination::orders::embedded::EmbeddedOrders;
use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::rusqlite::Connection;
use bongsu_sql::{DataFolder, Database, Migrations, Store, WriterState};
use tempfile::TempDir;

use crate::contract;
use crate::hub::{Coordination, Engine, Hub, LEASE, Memory, PATIENCE, revoke};

contract!(Embedded);

/// When the tests' clock begins.
const NOW: u64 = 1_708_070_400_000;

/// A data folder, and the one hub on it.
struct Embedded {
    folder: TempDir,
    clock: Clock,
    open: Option<Open>,
}

struct Open {
    coordination: Coordination,
    applied: Arc<Memory>,
    supervisor: Supervisor,
    store: Store,
    thread: WriterState,
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
        let applied = Arc::new(Memory::default());
        let orders = EmbeddedOrders::open(store.clone(), self.clock.clone(), applied.clone(), &supervisor);
        let coordination = Coordination {
            locks: Arc::new(EmbeddedLocks::new(LEASE)),
            orders: Arc::new(orders.await.unwrap()),
        };
        Open { coordination, applied, supervisor, store, thread }
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
        let Open { coordination, applied, .. } = self.open.as_ref().unwrap();
        let (coordination, applied) = (coordination.clone(), applied.clone());
        Hub { coordination, applied, supervisor: Supervisor::new(), process: None }
    }

    /// Goes on with a copy of the files as the kernel has them at this moment, which is what a kill leaves.
    async fn kill(&mut self, hubs: Vec<Hub>) {
        let left = tempfile::tempdir().unwrap();
        for file in std::fs::read_dir(self.folder.path()).unwrap().flatten() {
            // SQLite makes this one anew from the log beside the database.
            if !file.file_name().to_string_lossy().ends_with("-shm") {
                std::fs::copy(file.path(), left.path().join(file.file_name())).unwrap();
            }
        }
        drop(hubs);
        if let Some(open) = self.open.take() {
            open.store.writer().close().await;
            assert!(open.supervisor.shut_down(PATIENCE).await);
            tokio::task::spawn_blocking(move || assert!(open.thread.join(PATIENCE))).await.unwrap();
        }
        self.folder = left;
    }
}

#[tokio::test]
async fn a_revocation_is_kept_until_no_token_can_be_older() {
    let mut engine = Embedded::new();
    let hub = engine.hub().await;
    hub.give(revoke("anna", NOW)).await;
    let life = REVOCATION_LIFE.as_millis() as u64;
    engine.clock.set(NOW + life - 1);
    engine.kill(vec![hub]).await;
    let hub = engine.hub().await;
    assert_eq!(hub.revoked("anna").await, Some(NOW));
    engine.clock.set(NOW + life);
    engine.kill(vec![hub]).await;
    assert_eq!(engine.hub().await.revoked("anna").await, None);
}

#[tokio::test]
async fn more_revocations_than_fit_into_memory_are_looked_up() {
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
    for (user, before) in [("user100002", NOW + 5), ("somebody", NOW + 6), ("user0", NOW + 7)] {
        hub.give(revoke(user, before)).await;
        assert_eq!(hub.revoked(user).await, Some(before), "{user}");
    }
}
