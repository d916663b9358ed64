//! The paths of the workspace: its root, its target directory, and files that commands write.
//!
//! Commands write below the target directory, so that `cargo clean` removes their files. Outside it they write only
//! generated documents, the digest of checked dependencies and the durations of tests.

use std::path::{Path, PathBuf};

/// The root folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let manifest_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest_dir.parent().unwrap_or(manifest_dir).to_path_buf()
}

/// Cargo's target directory: `CARGO_TARGET_DIR`, or `target`.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(moved) => root().join(moved),
        None => root().join("target"),
    }
}

/// The file with the durations of long tests, by which the runner orders tests. `cargo xtask test --keep-durations`
/// writes it.
pub(crate) fn durations() -> PathBuf {
    root().join("xtask").join("durations.json")
}

/// Whether this is a CI run, in which no test may be left out.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}
