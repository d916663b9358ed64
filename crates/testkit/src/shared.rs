//! The engines that all tests share.
//!
//! `cargo xtask test` starts each engine once per run and passes its address in the environment variable of its row in
//! `bongsu_engines::ENGINES`. Without the variable (`cargo test`), the first test that needs an engine starts it for
//! its test process.

use std::path::Path;

use bongsu_engines::{Engine, Instance, engine, sql};
use tokio::sync::OnceCell;

use crate::child_process::FolderCleanup;
use crate::tier;

/// An engine that is never dropped: it is killed when the process ends, and its folder is removed after that.
struct ProcessEngine {
    instance: Instance,
    _folder: FolderCleanup,
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
        tokio::task::spawn_blocking(|| start(engine)).await.expect("the engine did not start")
    });
    started.await.instance.address.clone()
}

/// Starts an engine. The test needs the engine because the profile was chosen by name, so a missing program is a panic
/// and not a skipped test.
fn start(engine: &Engine) -> ProcessEngine {
    let missing = tier::missing_programs(engine.name);
    assert!(missing.is_empty(), "{} is missing; run `cargo xtask services`", missing.join(", "));
    let folder = tempfile::Builder::new().prefix("bongsu-engine-").tempdir();
    let folder = folder.expect("cannot create a temporary folder").keep();
    make_accessible(&folder);
    let cleanup = FolderCleanup::new(std::slice::from_ref(&folder));
    let instance = (engine.start)(&folder).wait_ready(engine).unwrap_or_else(|error| panic!("{error}"));
    ProcessEngine { instance, _folder: cleanup }
}

/// Lets every user enter the folder: PostgreSQL runs as its own user.
fn make_accessible(folder: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))
        .expect("cannot set the permissions of the folder");
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
