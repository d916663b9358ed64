//! Where things are: the workspace's root and the folders under its target directory.
//!
//! Everything that a command makes lies under the target directory, so that `cargo clean` undoes it;
//! only generated documents, the digest of checked dependencies and the durations of tests are written into the tree.

use std::path::{Path, PathBuf};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cargo's target directory, also when the environment moves it.
pub(crate) fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(moved) => root().join(moved),
        None => root().join("target"),
    }
}

/// Seconds that long tests took before, by which they are ordered: `cargo xtask test --keep-durations` writes it.
pub(crate) fn durations() -> PathBuf {
    root().join("xtask").join("durations.json")
}

/// Whether this is a CI run, where nothing may be left out.
pub(crate) fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false")
}
