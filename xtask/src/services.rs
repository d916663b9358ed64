//! `cargo xtask services`: installs the programs that the tests need beside Rust: those of `bongsu_engines::programs`,
//! schemathesis in a Python environment of its own, and the tools that run the examples of the documents.
//!
//! Missing programs are installed. A program that cannot be installed is an error in CI; elsewhere the last lines of
//! the run name the tests that are left out. The environment variable of a program can name its path; that program is
//! then used, and none is installed.

use std::ffi::OsString;
use std::path::PathBuf;

use bongsu_engines::programs::{self, PROGRAMS, Program};

use crate::process::{capture_both_if_ok, command};
use crate::steps::{StepError, Steps};
use crate::{node, packages, paths, venv};

/// A program that is installed with its libraries into a folder of its own, not from a Debian package.
struct BundledTool {
    variable: &'static str,
    purpose: &'static str,
    ensure: fn(&BundledTool) -> Result<(PathBuf, String), String>,
}

const BUNDLED_TOOLS: [BundledTool; 3] = [
    BundledTool {
        variable: "BONGSU_SCHEMATHESIS",
        purpose: "openapi: schemathesis against the description",
        ensure: |tool| venv::ensure(tool.variable, &venv::SCHEMATHESIS),
    },
    BundledTool {
        variable: "BONGSU_EXAMPLE_PYTHON",
        purpose: "examples: Python",
        ensure: |tool| venv::ensure(tool.variable, &venv::PYTHON),
    },
    BundledTool {
        variable: "BONGSU_EXAMPLE_TSC",
        purpose: "examples: TypeScript",
        ensure: |tool| node::ensure(tool.variable),
    },
];

/// A program that is installed and runs.
#[derive(Debug)]
struct InstalledProgram {
    variable: String,
    path: PathBuf,
    version: String,
}

/// The installed programs, and the missing ones.
#[derive(Debug, Default)]
pub(crate) struct Services {
    found: Vec<InstalledProgram>,
    /// For each missing program one line: the tests that are left out, and the reason.
    pub(crate) missing: Vec<String>,
}

impl Services {
    /// The environment variables from which tests learn the paths of the programs.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (String, OsString)> {
        self.found.iter().map(|found| (found.variable.clone(), found.path.clone().into()))
    }

    /// For each program one line: its version and path.
    pub(crate) fn versions(&self) -> impl Iterator<Item = String> {
        self.found
            .iter()
            .map(|InstalledProgram { path, version, .. }| format!("{version}, {}", path.display()))
    }
}

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), StepError> {
    if let Some(argument) = arguments.first() {
        return Err(steps.refuse(format!("services takes no arguments, got {argument}")));
    }
    let services = steps.step("engines and programs", |_| ensure())?;
    steps.used.extend(services.versions());
    steps.not_run.extend(services.missing);
    Ok(())
}

/// Installs missing programs. In CI it fails when one cannot be installed.
pub(crate) fn ensure() -> Result<Services, String> {
    let absent = PROGRAMS.iter().filter(|program| programs::find(program.name).is_none());
    let mut missing_packages: Vec<_> = absent.map(|program| program.package).collect();
    if venv::needs_package() {
        missing_packages.push(venv::PACKAGE);
    }
    let installed = if missing_packages.is_empty() { Ok(()) } else { packages::install(&missing_packages) };

    let mut services = Services::default();
    for program in &PROGRAMS {
        match find(program, &installed) {
            Ok(found) => services.found.push(found),
            Err(reason) => services.missing.push(format!("{} ({reason})", program.purpose)),
        }
    }
    for tool in &BUNDLED_TOOLS {
        match (tool.ensure)(tool) {
            Ok((path, version)) => {
                services.found.push(InstalledProgram { variable: tool.variable.to_owned(), path, version });
            }
            Err(reason) => services.missing.push(format!("{} ({reason})", tool.purpose)),
        }
    }
    if paths::in_ci() && !services.missing.is_empty() {
        return Err(format!("missing, which is an error in CI: {}", services.missing.join("; ")));
    }
    Ok(services)
}

fn find(program: &Program, installed: &Result<(), String>) -> Result<InstalledProgram, String> {
    let name = program.name;
    let Some(path) = programs::find(name) else {
        let reason = installed.as_ref().err().map_or("installed, but not on the search path", String::as_str);
        return Err(format!("{name} of the Debian package {} is missing: {reason}", program.package));
    };
    let Some(output) = capture_both_if_ok(command(&path).args(program.trial)) else {
        return Err(format!("{} does not run: {name} {} failed", path.display(), program.trial.join(" ")));
    };
    // The trial call of some programs prints no version; then `--version` is tried.
    let number = version_number(&output)
        .or_else(|| version_number(&capture_both_if_ok(command(&path).arg("--version"))?));
    let version = format!("{name} {}", number.as_deref().unwrap_or("of unknown version"));
    Ok(InstalledProgram { variable: programs::variable(name), path, version })
}

/// The first number that contains a dot, without the text around it (`v=7.0.15`, `nginx/1.22.1`).
fn version_number(output: &str) -> Option<String> {
    let mut parts =
        output.split(|c: char| !c.is_ascii_digit() && c != '.').map(|part| part.trim_matches('.'));
    parts.find(|part| part.contains('.')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_numbers_are_found_in_the_output_of_programs() {
        for (output, version) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", Some("7.0.15")),
            ("nginx version: nginx/1.22.1\n", Some("1.22.1")),
            ("Chromium 140.0.7339.80 built on Debian GNU/Linux 12", Some("140.0.7339.80")),
            ("strace -- version 6.1\nCopyright (c) 1991-2022.", Some("6.1")),
            ("2024", None),
        ] {
            assert_eq!(version_number(output).as_deref(), version);
        }
    }
}
