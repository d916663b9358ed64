//! The Node packages of the tests, in the versions of package-lock.json.
//!
//! They are installed into a folder of the target directory, and again when package-lock.json changes. Install scripts
//! of packages do not run.

use std::fs;
use std::path::{Path, PathBuf};

use bongsu_engines::programs;

use crate::paths;
use crate::process::{capture_if_ok, command, run_logged};

const PACKAGE_JSON: &str = include_str!("../package.json");
const PACKAGE_LOCK: &str = include_str!("../package-lock.json");
/// A copy of package-lock.json, written after all packages were installed.
const INSTALLED_LOCK: &str = "installed.json";

/// The path and version of the TypeScript compiler: the one that the variable names, or the installed one, whose folder
/// also has the database drivers that the examples use.
pub(crate) fn ensure(variable: &str) -> Result<(PathBuf, String), String> {
    if let Some(given) = std::env::var_os(variable) {
        return with_version(given.into());
    }
    let folder = paths::target().join("services").join("node");
    let program = folder.join("node_modules").join(".bin").join("tsc");
    let is_current =
        fs::read_to_string(folder.join(INSTALLED_LOCK)).is_ok_and(|installed| installed == PACKAGE_LOCK);
    if !is_current || version(&program).is_none() {
        install(&folder)?;
    }
    with_version(program)
}

fn install(folder: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot write to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join("package.json"), PACKAGE_JSON).map_err(failed)?;
    fs::write(folder.join("package-lock.json"), PACKAGE_LOCK).map_err(failed)?;
    let npm = std::env::var_os("BONGSU_NPM").map(PathBuf::from).or_else(|| programs::find("npm"));
    let npm = npm.ok_or("npm is missing: install nodejs and npm")?;
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
    run_logged(command(npm).arg("ci").args(quiet).arg("--prefix").arg(folder))?;
    fs::write(folder.join(INSTALLED_LOCK), PACKAGE_LOCK).map_err(failed)
}

fn with_version(program: PathBuf) -> Result<(PathBuf, String), String> {
    let version =
        version(&program).ok_or_else(|| format!("{} does not run: --version failed", program.display()))?;
    Ok((program, version))
}

fn version(program: &Path) -> Option<String> {
    let output = capture_if_ok(command(program).arg("--version"))?;
    Some(format!("TypeScript {}", output.trim().trim_start_matches("Version ")))
}
