//! The real engines that tests and benchmarks run on: the programs of each, how it starts, when it is ready and how it
//! ends.
//!
//! [`ENGINES`] is the table. `cargo xtask test` installs and starts every row once and passes the addresses to the test
//! processes; a test that kills or reconfigures an engine starts its own with the same functions. This crate uses no
//! async runtime and no database driver, so that `cargo xtask` builds in seconds.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "test support: a failure is a panic with its reason"
)]

pub mod child_process;
pub mod ports;
pub mod process;
pub mod programs;
pub mod redis;
pub mod sql;

mod instance;

pub use instance::{Instance, read_log, tail};

use std::path::Path;

/// One kind of engine.
pub struct Engine {
    /// The name that tests and the summary of a run use.
    pub name: &'static str,
    /// The environment variable that gives tests the address of the run's instance.
    pub variable: &'static str,
    /// The programs that must be installed: names in [`programs::PROGRAMS`].
    pub programs: &'static [&'static str],
    /// Starts an instance in an empty folder that every user may enter, without waiting until it is ready.
    pub start: fn(&Path) -> Instance,
    /// Whether the instance serves clients; polled after the start.
    pub is_ready: fn(&Instance) -> bool,
}

/// All engines. Dropping the [`Instance`] kills the processes of an engine; a clean shutdown is not needed, because the
/// data of a test run is not kept.
pub const ENGINES: [Engine; 4] = [
    Engine {
        name: "redis",
        variable: "BONGSU_SHARED_REDIS",
        programs: &["redis-server", "redis-cli"],
        start: redis::start_single,
        is_ready: redis::is_single_ready,
    },
    Engine {
        name: "cluster",
        variable: "BONGSU_SHARED_CLUSTER",
        programs: &["redis-server", "redis-cli"],
        start: redis::start_cluster,
        is_ready: redis::is_cluster_ready,
    },
    Engine {
        name: "postgres",
        variable: "BONGSU_SHARED_POSTGRES",
        programs: &["postgres"],
        start: |folder| sql::start(&sql::POSTGRES, folder),
        is_ready: |instance| sql::is_ready(&sql::POSTGRES, instance),
    },
    Engine {
        name: "mariadb",
        variable: "BONGSU_SHARED_MARIADB",
        programs: &["mariadbd", "mariadb"],
        start: |folder| sql::start(&sql::MARIADB, folder),
        is_ready: |instance| sql::is_ready(&sql::MARIADB, instance),
    },
];

/// The row of [`ENGINES`] with this name; panics if there is none.
pub fn engine(name: &str) -> &'static Engine {
    const TABLE: &[Engine] = &ENGINES;
    TABLE.iter().find(|engine| engine.name == name).unwrap_or_else(|| panic!("there is no engine {name:?}"))
}
