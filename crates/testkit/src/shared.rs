//! The engines that all tests share.
//!
//! `cargo xtask test` starts each once for the whole run and passes its address by the variable of its row. Without
//! that variable (`cargo test` by hand) the first test of a process that needs an engine starts it for the process.

use std::path::Path;

use bongsu_engines::{Engine, Instance, engine, sql};
use tokio::sync::OnceCell;

use crate::mortal::RemovedAfterwards;
use crate::tier;

/// An engine that nothing ever drops: it dies with the process, and its folder is removed afterwards.
struct ProcessEngine {
    instance: Instance,
    _folder: RemovedAfterwards,
}

static REDIS: OnceCell<ProcessEngine> = OnceCell::const_new();
static CLUSTER: OnceCell<ProcessEngine> = OnceCell::const_new();
static POSTGRES: OnceCell<ProcessEngine> = OnceCell::const_new();
static MARIADB: OnceCell<ProcessEngine> = OnceCell::const_new();

/// The address of the shared engine of this name.
pub(crate) async fn address(name: &str) -> String {
    let engine = engine(name);
    if let Ok(address) = std::env::var(engine.variable) {
        return address;
    }
    let cell = match name {
        "redis" => &REDIS,
        "cluster" => &CLUSTER,
        sql if sql == sql::POSTGRES.name => &POSTGRES,
        _ => &MARIADB,
    };
    let started = cell.get_or_init(|| async {
        tokio::task::spawn_blocking(|| start(engine)).await.expect("an engine that starts")
    });
    started.await.instance.address.clone()
}

/// A profile was asked for by name, so nothing of it is left out: a missing program is a failure.
fn start(engine: &Engine) -> ProcessEngine {
    let missing = tier::missing_programs(engine.name);
    assert!(missing.is_empty(), "{} is missing; `cargo xtask services`", missing.join(", "));
    let folder = tempfile::Builder::new().prefix("bongsu-engine-").tempdir().expect("a folder").keep();
    open_to_all(&folder);
    let removed = RemovedAfterwards::new(std::slice::from_ref(&folder));
    let instance = (engine.start)(&folder).wait_ready(engine).unwrap_or_else(|error| panic!("{error}"));
    ProcessEngine { instance, _folder: removed }
}

/// PostgreSQL runs as a user of its own, who has to get there.
fn open_to_all(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("an own folder");
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
