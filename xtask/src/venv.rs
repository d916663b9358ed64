//! The Python environment of the tests, with exactly what requirements.txt names.
//!
//! It is built in the target directory, where the system's Python packages cannot disturb it, and built
//! again when the requirements change or its interpreter has gone.

use std::fs;
use std::path::{Path, PathBuf};

use crate::place;
use crate::process::{ask, command, run};

/// The Debian package that makes an interpreter able to build environments.
pub(crate) const PACKAGE: &str = "python3-venv";
const REQUIREMENTS: &str = include_str!("../requirements.txt");
/// A copy of the requirements, written when all of them were installed.
const STAMP: &str = "requirements.txt";

/// Whether no interpreter here can build an environment, and none is built yet.
pub(crate) fn needs_package() -> bool {
    version(&program()).is_none() && interpreter().is_none()
}

/// The path and version of schemathesis: the one that the variable names, or the environment's own.
pub(crate) fn ensure(variable: &str) -> Result<(PathBuf, String), String> {
    if let Some(given) = std::env::var_os(variable).map(PathBuf::from) {
        let version = version(&given).ok_or_else(|| format!("{} does not work", given.display()))?;
        return Ok((given, version));
    }
    let program = program();
    let current = fs::read_to_string(folder().join(STAMP)).is_ok_and(|stamp| stamp == REQUIREMENTS);
    if !current || version(&program).is_none() {
        build(&folder())?;
    }
    let version = version(&program).ok_or_else(|| format!("{} does not work", program.display()))?;
    Ok((program, version))
}

fn build(folder: &Path) -> Result<(), String> {
    let python = interpreter().ok_or_else(|| format!("no python3 with venv: install {PACKAGE}"))?;
    run(command(python).args(["-m", "venv", "--clear"]).arg(folder))?;
    let requirements = place::root().join("xtask").join("requirements.txt");
    let mut pip = command(folder.join("bin").join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run(pip.arg(requirements))?;
    fs::write(folder.join(STAMP), REQUIREMENTS).map_err(|error| format!("cannot write {STAMP}: {error}"))
}

/// An interpreter that brings all that an environment is made of. The one on the path may come without,
/// while the system's own has it.
fn interpreter() -> Option<PathBuf> {
    let candidates = [place::on_path("python3"), Some(PathBuf::from("/usr/bin/python3"))];
    candidates
        .into_iter()
        .flatten()
        .find(|python| ask(command(python).args(["-c", "import ensurepip, venv"])).is_some())
}

fn version(program: &Path) -> Option<String> {
    let said = ask(command(program).arg("--version"))?;
    Some(said.trim().replace(", version", ""))
}

fn program() -> PathBuf {
    folder().join("bin").join("schemathesis")
}

fn folder() -> PathBuf {
    place::target().join("services").join("venv")
}
