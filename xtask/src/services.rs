//! `cargo xtask services`: what the tests need beside Rust: the programs of `bongsu_engines::programs`, schemathesis in a
//! Python environment of its own, and what the examples of the documents are run with.
//!
//! What is missing is installed. What cannot be had is an error in CI; elsewhere the last lines of the run name what is
//! left out. A path in a program's variable is taken as it is.

use std::ffi::OsString;
use std::path::PathBuf;

use bongsu_engines::programs::{self, PROGRAMS, Program};

use crate::process::{command, said};
use crate::steps::{Steps, Stopped};
use crate::{node, packages, place, venv};

/// Programs that come with their libraries, in folders of their own: how each is had, and what is not tested without it.
struct Kit {
    variable: &'static str,
    purpose: &'static str,
    ensure: fn(&Kit) -> Result<(PathBuf, String), String>,
}

const KITS: [Kit; 3] = [
    Kit {
        variable: "BONGSU_SCHEMATHESIS",
        purpose: "openapi: schemathesis against the description",
        ensure: |kit| venv::ensure(kit.variable, &venv::SCHEMATHESIS),
    },
    Kit {
        variable: "BONGSU_EXAMPLE_PYTHON",
        purpose: "examples: Python",
        ensure: |kit| venv::ensure(kit.variable, &venv::PYTHON),
    },
    Kit {
        variable: "BONGSU_EXAMPLE_TSC",
        purpose: "examples: TypeScript",
        ensure: |kit| node::ensure(kit.variable),
    },
];

/// A program that is there and works.
#[derive(Debug)]
struct Found {
    variable: String,
    path: PathBuf,
    version: String,
}

/// What the tests may count on.
#[derive(Debug, Default)]
pub(crate) struct Services {
    found: Vec<Found>,
    /// What is left out without the programs that are missing, one line each.
    pub(crate) missing: Vec<String>,
}

impl Services {
    /// The variables by which tests find the programs.
    pub(crate) fn environment(&self) -> impl Iterator<Item = (String, OsString)> {
        self.found.iter().map(|found| (found.variable.clone(), found.path.clone().into()))
    }

    /// Every program with its version and place, one line each.
    pub(crate) fn versions(&self) -> impl Iterator<Item = String> {
        self.found.iter().map(|Found { path, version, .. }| format!("{version}, {}", path.display()))
    }
}

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Stopped> {
    if let Some(argument) = arguments.first() {
        return Err(steps.refuse(format!("services takes no arguments, got {argument}")));
    }
    let services = steps.step("engines and programs", |_| ensure())?;
    steps.used.extend(services.versions());
    steps.not_run.extend(services.missing);
    Ok(())
}

/// Installs what is missing.
pub(crate) fn ensure() -> Result<Services, String> {
    let absent = PROGRAMS.iter().filter(|program| programs::find(program.name).is_none());
    let mut wanted: Vec<_> = absent.map(|program| program.package).collect();
    if venv::needs_package() {
        wanted.push(venv::PACKAGE);
    }
    let installed = if wanted.is_empty() { Ok(()) } else { packages::install(&wanted) };

    let mut services = Services::default();
    for program in &PROGRAMS {
        match find(program, &installed) {
            Ok(found) => services.found.push(found),
            Err(reason) => services.missing.push(format!("{} ({reason})", program.purpose)),
        }
    }
    for kit in &KITS {
        match (kit.ensure)(kit) {
            Ok((path, version)) => {
                services.found.push(Found { variable: kit.variable.to_owned(), path, version });
            }
            Err(reason) => services.missing.push(format!("{} ({reason})", kit.purpose)),
        }
    }
    if place::in_ci() && !services.missing.is_empty() {
        return Err(format!("cannot be had, and CI leaves nothing out: {}", services.missing.join("; ")));
    }
    Ok(services)
}

fn find(program: &Program, installed: &Result<(), String>) -> Result<Found, String> {
    let name = program.name;
    let Some(path) = programs::find(name) else {
        let why = installed.as_ref().err().map_or("installed, but not on the search path", String::as_str);
        return Err(format!("{name} of the Debian package {} is missing: {why}", program.package));
    };
    let Some(tried) = said(command(&path).args(program.trial)) else {
        return Err(format!("{} does not work: {name} {} fails", path.display(), program.trial.join(" ")));
    };
    // Not every program has a word for its version alone, and not every trial tells it.
    let number = number(&tried).or_else(|| number(&said(command(&path).arg("--version"))?));
    let version = format!("{name} {}", number.as_deref().unwrap_or("of unknown version"));
    Ok(Found { variable: programs::variable(name), path, version })
}

/// The first number with a dot in it, with whatever stands around it left away (`v=7.0.15`, `nginx/1.22.1`).
fn number(said: &str) -> Option<String> {
    let mut parts = said.split(|c: char| !c.is_ascii_digit() && c != '.').map(|part| part.trim_matches('.'));
    parts.find(|part| part.contains('.')).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        for (said, version) in [
            ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", Some("7.0.15")),
            ("nginx version: nginx/1.22.1\n", Some("1.22.1")),
            ("Chromium 140.0.7339.80 built on Debian GNU/Linux 12", Some("140.0.7339.80")),
            ("strace -- version 6.1\nCopyright (c) 1991-2022.", Some("6.1")),
            ("2024", None),
        ] {
            assert_eq!(number(said).as_deref(), version);
        }
    }
}
