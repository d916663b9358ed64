//! The profile of the run: what hubs keep their events in, a file each or an engine that all hubs share.
//!
//! On a shared engine every hub has a prefix of its own and a twin ([`Hub::twin`](crate::Hub::twin)), so that tests
//! of publishing and streaming go over two processes without a change. On `split` the second process has the role
//! `worker` instead ([`Hub::worker`](crate::Hub::worker)), and the first one serves streams and requests alone.

use std::sync::LazyLock;

use crate::sql::Flavour;
use crate::{shared, tier};

/// The profile of the run, from `BONGSU_TEST_ENGINE` (`embedded`, `redis`, `cluster`, `split`; embedded when unset).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// A file in each hub's folder.
    Embedded,
    /// One Redis server; records on PostgreSQL.
    Redis,
    /// A Redis Cluster of three; records on MariaDB.
    Cluster,
    /// As Redis, with `ROLES=api` and `ROLES=worker` in processes of their own.
    Split,
}

/// The profile that runs now.
pub fn engine() -> Engine {
    static CURRENT: LazyLock<Engine> =
        LazyLock::new(|| Engine::named(&std::env::var("BONGSU_TEST_ENGINE").unwrap_or_default()));
    *CURRENT
}

/// Whether a test of something that only the embedded engine has can run. Where it cannot, it is reported as not
/// applicable.
pub fn needs_embedded(why: &str) -> bool {
    let is_embedded = engine() == Engine::Embedded;
    if !is_embedded {
        tier::not_applicable(&format!("it needs the embedded engine: {why}"));
    }
    is_embedded
}

impl Engine {
    fn named(name: &str) -> Self {
        match name {
            "embedded" | "" => Self::Embedded,
            "redis" => Self::Redis,
            "cluster" => Self::Cluster,
            "split" => Self::Split,
            other => panic!("BONGSU_TEST_ENGINE is {other:?}; allowed: embedded, redis, cluster, split"),
        }
    }

    /// As `BONGSU_TEST_ENGINE` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Redis => "redis",
            Self::Cluster => "cluster",
            Self::Split => "split",
        }
    }

    /// What keeps the records beside it.
    pub fn records(self) -> Option<Flavour> {
        match self {
            Self::Embedded => None,
            Self::Redis | Self::Split => Some(Flavour::Postgres),
            Self::Cluster => Some(Flavour::MariaDb),
        }
    }

    /// Where the instance that all tests share is; None for embedded.
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
            assert_eq!(Engine::named(engine.name()), engine);
        }
        assert_eq!(Engine::named(""), Engine::Embedded);
    }
}
