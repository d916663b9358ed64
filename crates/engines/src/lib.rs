//! The real engines that tests and benchmarks run on: what each needs installed, how it is started, when it is ready,
//! how it ends.
//!
//! [`ENGINES`] is the table. `cargo xtask test` installs and starts every row once and passes the addresses to the test
//! processes; tests that kill or reconfigure an engine start their own with the same functions. Nothing here uses an
//! async runtime or a driver, so that the project's own commands build in seconds.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "test support: a failure is a panic with its reason"
)]

pub mod mortal;
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
    /// As tests and the summary of a run name it.
    pub name: &'static str,
    /// The environment variable by which tests learn where the instance of the run is.
    pub variable: &'static str,
    /// What must be installed: names of [`programs::PROGRAMS`].
    pub programs: &'static [&'static str],
    /// Starts an instance in an empty folder that everybody may enter, without waiting for it.
    pub start: fn(&Path) -> Instance,
    /// Whether the instance serves clients; asked again and again after the start.
    pub is_ready: fn(&Instance) -> bool,
}

/// All engines. Each is stopped in the same way: its processes are killed ([`Instance`]), because nothing of a test run
/// is kept.
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

/// The row of this name.
pub fn engine(name: &str) -> &'static Engine {
    const TABLE: &[Engine] = &ENGINES;
    TABLE.iter().find(|engine| engine.name == name).unwrap_or_else(|| panic!("there is no engine {name:?}"))
}
