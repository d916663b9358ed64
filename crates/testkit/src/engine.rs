//! What hubs keep their events in during this run: a file each, or an engine that all hubs of the test process
//! share, started once, when the first of them needs it.
//!
//! On a shared engine every hub has a prefix of its own and a twin ([`Hub::twin`](crate::Hub::twin)), so that tests
//! of publishing and streaming go over two processes without a change.

use std::sync::LazyLock;

use tokio::sync::OnceCell;

use crate::mortal::RemovedAfterwards;
use crate::redis::{Cluster, Redis};
use crate::sql::Flavour;
use crate::{say, tier};

/// The profile of the run, from `BONGSU_TEST_ENGINE` (`embedded`, `redis`, `cluster`; embedded when unset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A file in each hub's folder.
    Embedded,
    /// One Redis server; records on PostgreSQL.
    Redis,
    /// A Redis Cluster of three; records on MariaDB.
    Cluster,
}

/// The profile that runs now.
pub fn engine() -> Engine {
    static CURRENT: LazyLock<Engine> =
        LazyLock::new(|| Engine::named(&std::env::var("BONGSU_TEST_ENGINE").unwrap_or_default()));
    *CURRENT
}

/// Whether a test of something that only the embedded engine has can run. Where it cannot, one line says so.
pub fn needs_embedded(why: &str) -> bool {
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    let embedded = engine() == Engine::Embedded;
    if !embedded {
        say(&format!("NOT RUN: {test}: it needs the embedded engine: {why}"));
    }
    embedded
}

/// An engine that nothing ever drops: it goes with the process, and its folders afterwards.
struct Lasting<T> {
    service: T,
    _folders: RemovedAfterwards,
}

static REDIS: OnceCell<Lasting<Redis>> = OnceCell::const_new();
static CLUSTER: OnceCell<Lasting<Cluster>> = OnceCell::const_new();

impl Engine {
    fn named(name: &str) -> Self {
        match name {
            "embedded" | "" => Self::Embedded,
            "redis" => Self::Redis,
            "cluster" => Self::Cluster,
            other => panic!("BONGSU_TEST_ENGINE is {other:?}; allowed: embedded, redis, cluster"),
        }
    }

    /// As `BONGSU_TEST_ENGINE` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis => "redis",
            Self::Cluster => "cluster",
        }
    }

    /// What keeps the records beside it.
    pub fn records(self) -> Option<Flavour> {
        match self {
            Self::Embedded => None,
            Self::Redis => Some(Flavour::Postgres),
            Self::Cluster => Some(Flavour::MariaDb),
        }
    }

    /// Where the one that all tests of this process share is, started if it does not run yet; none for embedded.
    pub async fn shared_url(self) -> Option<String> {
        match self {
            Self::Embedded => None,
            Self::Redis => Some(REDIS.get_or_init(start_redis).await.service.url()),
            Self::Cluster => Some(CLUSTER.get_or_init(start_cluster).await.service.url()),
        }
    }
}

async fn start_redis() -> Lasting<Redis> {
    available();
    let service = Redis::start().await;
    let folders = RemovedAfterwards::new(&[service.folder().to_owned()]);
    Lasting { service, _folders: folders }
}

async fn start_cluster() -> Lasting<Cluster> {
    available();
    let service = Cluster::start().await;
    let folders: Vec<_> = service.nodes().iter().map(|node| node.folder().to_owned()).collect();
    Lasting { service, _folders: RemovedAfterwards::new(&folders) }
}

/// A profile was asked for by name, so nothing of it is left out: no engine is a failure.
fn available() {
    assert!(tier::program("redis-server").is_file(), "there is no redis-server; `cargo xtask services`");
}

#[cfg(test)]
#[path = "engine_tests.rs"]
mod tests;
