//! The profile of the run: each hub stores its events in its own file, or all hubs share an engine.
//!
//! On a shared engine every hub has its own key prefix and a twin, a second process on the same engine
//! ([`Hub::twin`](crate::Hub::twin)), so that tests of publishing and streaming run over two processes without a
//! change. On `split` the second process has the role `worker` instead ([`Hub::worker`](crate::Hub::worker)), and the
//! first one serves all streams and requests.

use std::sync::LazyLock;

use crate::sql::Flavour;
use crate::{shared, tier};

/// The profile of the run, from `BONGSU_TEST_ENGINE` (`embedded`, `redis`, `cluster`, `split`; embedded when unset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Events and records in files in the data folder of each hub.
    Embedded,
    /// One Redis server; records on PostgreSQL.
    Redis,
    /// A Redis Cluster of three masters; records on MariaDB.
    Cluster,
    /// As Redis, with `ROLES=api` and `ROLES=worker` in separate processes.
    Split,
}

/// The profile of this run.
pub fn engine() -> Engine {
    static CURRENT: LazyLock<Engine> =
        LazyLock::new(|| Engine::parse(&std::env::var("BONGSU_TEST_ENGINE").unwrap_or_default()));
    *CURRENT
}

/// Whether this run uses the embedded engine. On another engine the calling test is reported as not applicable.
pub fn needs_embedded(why: &str) -> bool {
    let is_embedded = engine() == Engine::Embedded;
    if !is_embedded {
        tier::not_applicable(&format!("it needs the embedded engine: {why}"));
    }
    is_embedded
}

impl Engine {
    fn parse(name: &str) -> Self {
        match name {
            "embedded" | "" => Self::Embedded,
            "redis" => Self::Redis,
            "cluster" => Self::Cluster,
            "split" => Self::Split,
            other => panic!("BONGSU_TEST_ENGINE is {other:?}; allowed: embedded, redis, cluster, split"),
        }
    }

    /// The name in `BONGSU_TEST_ENGINE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis => "redis",
            Self::Cluster => "cluster",
            Self::Split => "split",
        }
    }

    /// The database server that keeps the records; None on the embedded engine.
    pub fn records(self) -> Option<Flavour> {
        match self {
            Self::Embedded => None,
            Self::Redis | Self::Split => Some(Flavour::Postgres),
            Self::Cluster => Some(Flavour::MariaDb),
        }
    }

    /// The URL of the instance that all tests share; None on the embedded engine.
    pub async fn shared_url(self) -> Option<String> {
        match self {
            Self::Embedded => None,
            Self::Redis | Self::Split => Some(shared::address("redis").await),
            Self::Cluster => Some(shared::address("cluster").await),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_by_name() {
        for engine in [Engine::Embedded, Engine::Redis, Engine::Cluster, Engine::Split] {
            assert_eq!(Engine::parse(engine.name()), engine);
        }
        assert_eq!(Engine::parse(""), Engine::Embedded);
    }
}
