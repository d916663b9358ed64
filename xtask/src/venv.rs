//! The Python environment of the tests, with exactly what requirements.txt names.
//!
//! It is built in the target directory, where the system's Python packages cannot disturb it, and built
//! again when the requirements change or its interpreter has gone.

use std::fs;
use std::path::{Path, PathBuf};

use bongsu_engines::programs;

use crate::place;
use crate::process::{ask, command, run_logged};

/// The Debian package that makes an interpreter able to build environments.
pub(crate) const PACKAGE: &str = "python3-venv";
const REQUIREMENTS: &str = include_str!("../requirements.txt");
/// A copy of the requirements, written when all of them were installed.
const STAMP: &str = "requirements.txt";

/// A program of the environment, and a call by which it tells its version.
pub(crate) struct Tool {
    name: &'static str,
    trial: &'static [&'static str],
}

pub(crate) const SCHEMATHESIS: Tool = Tool { name: "schemathesis", trial: &["--version"] };
/// The interpreter, with the drivers that the examples use.
pub(crate) const PYTHON: Tool = Tool {
    name: "python",
    trial: &[
        "-c",
        "import psycopg, pymysql, sqlite3; print('psycopg', psycopg.__version__, 'and PyMySQL', pymysql.VERSION_STRING)",
    ],
};

impl Tool {
    fn program(&self) -> PathBuf {
        folder().join("bin").join(self.name)
    }

    fn version(&self, program: &Path) -> Option<String> {
        let said = ask(command(program).args(self.trial))?;
        Some(said.trim().replace(", version", ""))
    }
}

/// Whether no interpreter here can build an environment, and none is built yet.
pub(crate) fn needs_package() -> bool {
    SCHEMATHESIS.version(&SCHEMATHESIS.program()).is_none() && interpreter().is_none()
}

/// The path and version of a tool: the one that the variable names, or the environment's own.
pub(crate) fn ensure(variable: &str, tool: &Tool) -> Result<(PathBuf, String), String> {
    let working = |program: PathBuf| match tool.version(&program) {
        Some(version) => Ok((program, version)),
        None => Err(format!("{} does not work", program.display())),
    };
    if let Some(given) = std::env::var_os(variable) {
        return working(given.into());
    }
    let current = fs::read_to_string(folder().join(STAMP)).is_ok_and(|stamp| stamp == REQUIREMENTS);
    if !current || tool.version(&tool.program()).is_none() {
        build(&folder())?;
    }
    working(tool.program())
}

fn build(folder: &Path) -> Result<(), String> {
    let python = interpreter().ok_or_else(|| format!("no python3 with venv: install {PACKAGE}"))?;
    run_logged(command(python).args(["-m", "venv", "--clear"]).arg(folder))?;
    let requirements = place::root().join("xtask").join("requirements.txt");
    let mut pip = command(folder.join("bin").join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run_logged(pip.arg(requirements))?;
    fs::write(folder.join(STAMP), REQUIREMENTS).map_err(|error| format!("cannot write {STAMP}: {error}"))
}

/// An interpreter that brings all that an environment is made of. The one on the path may come without,
/// while the system's own has it.
fn interpreter() -> Option<PathBuf> {
    let candidates = [programs::find("python3"), Some(PathBuf::from("/usr/bin/python3"))];
    candidates
        .into_iter()
        .flatten()
        .find(|python| ask(command(python).args(["-c", "import ensurepip, venv"])).is_some())
}

fn folder() -> PathBuf {
    place::target().join("services").join("venv")
}
