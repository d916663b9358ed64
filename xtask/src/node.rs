//! The Node packages of the tests, exactly those that package-lock.json names.
//!
//! They are installed into a folder of the target directory, and again when the list changes. None of them may run
//! anything while it is installed.

use std::fs;
use std::path::{Path, PathBuf};

use bongsu_engines::programs;

use crate::place;
use crate::process::{ask, command, run_logged};

const PACKAGES: &str = include_str!("../package.json");
const LOCK: &str = include_str!("../package-lock.json");
/// A copy of the list, written when all of it was installed.
const STAMP: &str = "installed.json";

/// The path and version of the TypeScript compiler, which has the drivers beside it that the examples use: the one that the
/// variable names, or the folder's own.
pub(crate) fn ensure(variable: &str) -> Result<(PathBuf, String), String> {
    if let Some(given) = std::env::var_os(variable) {
        return working(given.into());
    }
    let folder = place::target().join("services").join("node");
    let program = folder.join("node_modules").join(".bin").join("tsc");
    let current = fs::read_to_string(folder.join(STAMP)).is_ok_and(|stamp| stamp == LOCK);
    if !current || version(&program).is_none() {
        install(&folder)?;
    }
    working(program)
}

fn install(folder: &Path) -> Result<(), String> {
    let failed = |error| format!("cannot write to {}: {error}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    fs::write(folder.join("package.json"), PACKAGES).map_err(failed)?;
    fs::write(folder.join("package-lock.json"), LOCK).map_err(failed)?;
    let npm = std::env::var_os("BONGSU_NPM").map(PathBuf::from).or_else(|| programs::find("npm"));
    let npm = npm.ok_or("there is no npm: install nodejs and npm")?;
    let quiet = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"];
    run_logged(command(npm).arg("ci").args(quiet).arg("--prefix").arg(folder))?;
    fs::write(folder.join(STAMP), LOCK).map_err(failed)
}

fn working(program: PathBuf) -> Result<(PathBuf, String), String> {
    let version = version(&program).ok_or_else(|| format!("{} does not work", program.display()))?;
    Ok((program, version))
}

fn version(program: &Path) -> Option<String> {
    let said = ask(command(program).arg("--version"))?;
    Some(format!("TypeScript {}", said.trim().trim_start_matches("Version ")))
}
