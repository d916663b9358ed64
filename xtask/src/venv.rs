//! The Python environment of the tests, with the packages that requirements.txt names.
//!
//! It is a virtual environment in the target directory, so that the system's Python packages do not affect it. It is
//! built again when the requirements change, or when a tool in it does not run any more.

use std::fs;
use std::path::{Path, PathBuf};

use bongsu_engines::programs;

use crate::paths;
use crate::process::{capture_if_ok, command, run_logged};

/// The Debian package that Python needs to create virtual environments.
pub(crate) const PACKAGE: &str = "python3-venv";
const REQUIREMENTS: &str = include_str!("../requirements.txt");
/// A copy of the requirements, written after all of them were installed.
const INSTALLED_REQUIREMENTS: &str = "requirements.txt";

/// A program of the environment, and the arguments for which it prints its version.
pub(crate) struct Tool {
    name: &'static str,
    version_arguments: &'static [&'static str],
}

pub(crate) const SCHEMATHESIS: Tool = Tool { name: "schemathesis", version_arguments: &["--version"] };
/// The interpreter, with the database drivers that the examples use.
pub(crate) const PYTHON: Tool = Tool {
    name: "python",
    version_arguments: &[
        "-c",
        "import psycopg, pymysql, sqlite3; print('psycopg', psycopg.__version__, 'and PyMySQL', pymysql.VERSION_STRING)",
    ],
};

impl Tool {
    fn program(&self) -> PathBuf {
        folder().join("bin").join(self.name)
    }

    fn version(&self, program: &Path) -> Option<String> {
        let output = capture_if_ok(command(program).args(self.version_arguments))?;
        Some(output.trim().replace(", version", ""))
    }
}

/// Whether no environment is built yet and no interpreter can build one.
pub(crate) fn needs_package() -> bool {
    SCHEMATHESIS.version(&SCHEMATHESIS.program()).is_none() && interpreter().is_none()
}

/// The path and version of a tool: the one that the variable names, or the one in the environment, which is built if
/// necessary.
pub(crate) fn ensure(variable: &str, tool: &Tool) -> Result<(PathBuf, String), String> {
    let with_version = |program: PathBuf| match tool.version(&program) {
        Some(version) => Ok((program, version)),
        None => {
            Err(format!("{} does not run: {} failed", program.display(), tool.version_arguments.join(" ")))
        }
    };
    if let Some(given) = std::env::var_os(variable) {
        return with_version(given.into());
    }
    let is_current = fs::read_to_string(folder().join(INSTALLED_REQUIREMENTS))
        .is_ok_and(|installed| installed == REQUIREMENTS);
    if !is_current || tool.version(&tool.program()).is_none() {
        build(&folder())?;
    }
    with_version(tool.program())
}

fn build(folder: &Path) -> Result<(), String> {
    let python = interpreter().ok_or_else(|| format!("python3 with venv is missing: install {PACKAGE}"))?;
    run_logged(command(python).args(["-m", "venv", "--clear"]).arg(folder))?;
    let requirements = paths::root().join("xtask").join("requirements.txt");
    let mut pip = command(folder.join("bin").join("python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"]);
    run_logged(pip.arg(requirements))?;
    fs::write(folder.join(INSTALLED_REQUIREMENTS), REQUIREMENTS)
        .map_err(|error| format!("cannot write {INSTALLED_REQUIREMENTS}: {error}"))
}

/// An interpreter with the modules `ensurepip` and `venv`: the one on the search path, or the system's, because another
/// one on the path may lack them.
fn interpreter() -> Option<PathBuf> {
    let candidates = [programs::find("python3"), Some(PathBuf::from("/usr/bin/python3"))];
    candidates
        .into_iter()
        .flatten()
        .find(|python| capture_if_ok(command(python).args(["-c", "import ensurepip, venv"])).is_some())
}

fn folder() -> PathBuf {
    paths::target().join("services").join("venv")
}
