//! Two hubs on one database, or one hub on its own file: the fixture in which tests inject faults, write as any
//! program does, and open streams.

use std::ops::Deref;
use std::time::Duration;

use bongsu_kernel::settings::Values;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::{DatabaseAddress, Options, Records};
use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Hub, tier, wait};
use rusqlite::types::ValueRef;

use super::WAIT_TIMEOUT;
use crate::BONGSU;

/// Longer than any single step of these tests takes.
pub(super) const FLEET_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Fleet {
    pub(super) hubs: Vec<Hub>,
    pub(super) database: Option<Database>,
    _redis: Option<Redis>,
}

/// A database on a server that tests share, or on one that this test controls.
pub(super) struct Database {
    server: ServerHandle,
    url: String,
}

enum ServerHandle {
    Own(Server),
    Shared(&'static Server),
}

impl Deref for Database {
    type Target = Server;

    fn deref(&self) -> &Server {
        match &self.server {
            ServerHandle::Own(server) => server,
            ServerHandle::Shared(server) => server,
        }
    }
}

impl Database {
    pub(super) fn name(&self) -> &str {
        Server::database_name(&self.url)
    }

    /// A database with all tables, on the shared server. No hub uses it.
    pub(super) async fn migrated(flavour: Flavour) -> Self {
        Self::with_tables(ServerHandle::Shared(flavour.shared().await)).await
    }

    /// As [`Self::migrated`] on a separate server, for tests about the transactions of a whole server.
    pub(super) async fn migrated_on_own_server(flavour: Flavour) -> Self {
        Self::with_tables(ServerHandle::Own(Server::start(flavour).await)).await
    }

    async fn with_tables(server: ServerHandle) -> Self {
        let mut database = Self { server, url: String::new() };
        database.url = database.database();
        database.records(1).await;
        database
    }

    /// Connects as any program does.
    pub(super) async fn records(&self, max_connections: usize) -> Records {
        let options = Options { address: DatabaseAddress::parse(&self.url).unwrap(), max_connections };
        let migrations = bongsu::PARTS.migrations(&Values::default(), options.address.dialect()).unwrap();
        Records::connect(&options, &migrations, &Supervisor::new()).await.unwrap()
    }
}

impl Fleet {
    /// A fleet on the shared server; None where an engine is not available.
    pub(super) async fn start(flavour: Option<Flavour>) -> Option<Self> {
        Self::start_with(flavour, None, |builder| builder).await
    }

    /// A fleet on a separate server.
    pub(super) async fn start_on_own_server(flavour: Option<Flavour>) -> Option<Self> {
        Self::start_with(flavour, Some(&[]), |builder| builder).await
    }

    /// A fleet with these hub settings; on a separate server if `apart` has settings for one.
    pub(super) async fn start_with(
        flavour: Option<Flavour>,
        apart: Option<&[&str]>,
        with: impl Fn(Builder) -> Builder,
    ) -> Option<Self> {
        let builder = || Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).env("LOCK_TTL_SECS", 1);
        let Some(flavour) = flavour else {
            let hub = with(builder().without_env("REDIS_URL")).start().await;
            return Some(Self { hubs: vec![hub], database: None, _redis: None });
        };
        if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
            return None;
        }
        let redis = Redis::start().await;
        let server = match apart {
            Some(settings) => ServerHandle::Own(Server::start_with(flavour, settings).await),
            None => ServerHandle::Shared(flavour.shared().await),
        };
        let mut database = Database { server, url: String::new() };
        database.url = database.database();
        let mut hubs = Vec::new();
        for _ in 0..2 {
            let builder = builder().env("REDIS_URL", redis.url()).env("DATABASE_URL", &database.url);
            hubs.push(with(builder.env("DATABASE_MAX_CONNECTIONS", 10)).start().await);
        }
        Some(Self { hubs, database: Some(database), _redis: Some(redis) })
    }

    pub(super) fn name(&self) -> &'static str {
        self.database.as_ref().map_or("embedded", |database| database.flavour().name())
    }

    /// Opens the file of the embedded hub, as another program does.
    pub(super) fn file(&self) -> rusqlite::Connection {
        let file = rusqlite::Connection::open(self.hubs[0].data_dir().join("bongsu.db")).unwrap();
        file.busy_timeout(WAIT_TIMEOUT).unwrap();
        file
    }

    /// Runs SQL as another program does.
    pub(super) fn sql(&self, sql: &str) {
        match &self.database {
            None => self.file().execute_batch(sql).unwrap(),
            Some(database) => drop(database.execute(database.name(), sql)),
        }
    }

    /// Makes sure that the commits seen so far are on disk: MariaDB shows a commit before it is on disk, and writes
    /// all earlier commits before it acknowledges a later one.
    pub(super) fn flush_commits(&self) {
        self.sql("INSERT INTO memberships (event_id, user_id, status) VALUES ('settled', '1', 'PENDING')");
    }

    /// The rows of a query's result.
    pub(super) fn query(&self, sql: &str) -> Vec<Vec<String>> {
        match &self.database {
            None => {
                let file = self.file();
                let mut question = file.prepare(sql).unwrap();
                let columns = question.column_count();
                let text = |value: ValueRef<'_>| match value {
                    ValueRef::Integer(number) => number.to_string(),
                    ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    ValueRef::Null | ValueRef::Real(_) | ValueRef::Blob(_) => String::new(),
                };
                let row =
                    |row: &rusqlite::Row<'_>| (0..columns).map(|at| row.get_ref(at).map(text)).collect();
                question.query_map([], row).unwrap().collect::<Result<_, _>>().unwrap()
            }
            Some(database) => {
                let said = database.execute(database.name(), sql);
                said.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
            }
        }
    }

    /// The ids of all rows of an event that have a position, in the order of their positions.
    pub(super) fn row_order(&self, event: impl std::fmt::Display) -> Vec<i64> {
        let told = format!(
            "SELECT id FROM outbox_events WHERE target_event_id = '{event}' AND position IS NOT NULL \
             AND event_type <> 'system.removed' ORDER BY position"
        );
        self.query(&told).iter().map(|row| row[0].parse().unwrap()).collect()
    }

    pub(super) fn accept(&self, event: impl std::fmt::Display, people: &[u64]) {
        let row = |person: &u64| format!("('{event}', '{person}', 'ACCEPTED')");
        let rows: Vec<String> = people.iter().map(row).collect();
        self.sql(&format!("INSERT INTO memberships (event_id, user_id, status) VALUES {}", rows.join(", ")));
    }

    /// Writes rows with these numbers and texts of `bytes` bytes. Every tenth row has a type that a worker processes,
    /// and every second one of these is marked as DONE.
    pub(super) async fn write_large(
        &self,
        event: &str,
        numbers: std::ops::RangeInclusive<u64>,
        bytes: usize,
    ) {
        let text = match self.database {
            None => format!("hex(zeroblob({}))", bytes / 2),
            Some(_) => format!("repeat('x', {bytes})"),
        };
        let numbers: Vec<u64> = numbers.collect();
        // MariaDB limits a recursion to 1000 steps.
        for some in numbers.chunks(900) {
            let (first, last) = (some[0], some[some.len() - 1]);
            self.sql(&format!(
                "INSERT INTO outbox_events (event_type, payload, target_event_id, status) \
                 WITH RECURSIVE counted (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM counted WHERE n < {last}) \
                 SELECT CASE WHEN n % 10 = 0 THEN 'worked.on.v1' ELSE 'proposal.created.v1' END, \
                     concat('{{\"proposal_id\": ', n, ', \"text\": \"', {text}, '\"}}'), '{event}', \
                     CASE WHEN n % 20 = 0 THEN 'DONE' ELSE 'PENDING' END \
                 FROM counted ORDER BY n"
            ));
            // Lets readers on the same thread read.
            tokio::task::yield_now().await;
        }
    }

    /// The index of the hub that runs the sequencer.
    pub(super) fn sequencer(&self) -> Option<usize> {
        self.runner("outbox-sequencer")
    }

    /// The index of the hub that holds the lock of a runner.
    pub(super) fn runner(&self, name: &str) -> Option<usize> {
        self.last_acquired(name).map(|(_, at)| at)
    }

    /// The latest acquisition of a runner lock: its time as in the log, and the index of the hub.
    pub(super) fn last_acquired(&self, name: &str) -> Option<(String, usize)> {
        let granted = |hub: &Hub| {
            let log = hub.worker().unwrap_or(hub).log();
            let turn = format!("starting the loop\",\"runner\":\"{name}\"");
            let turns = log.lines().filter(|line| line.contains(&turn));
            let began =
                |line: &str| Some(line.split_once("\"timestamp\":\"")?.1.split('"').next()?.to_owned());
            turns.filter_map(began).max()
        };
        let turns = self.hubs.iter().map(granted).enumerate();
        turns.filter_map(|(at, began)| Some((began?, at))).max()
    }

    /// Waits until another hub than `before` runs the sequencer.
    pub(super) async fn wait_for_takeover(&self, before: usize) {
        wait::until(FLEET_TIMEOUT, async || self.sequencer().is_some_and(|now| now != before)).await;
    }
}
