//! `cargo xtask services`: what the tests need beside Rust: a browser and its driver, strace, and
//! schemathesis in a Python environment of its own.
//!
//! What is missing is installed. What cannot be had is an error in CI; elsewhere the profile that
//! needs it is named in the last lines of the run. A path in the program's variable is taken as it is.

use std::path::PathBuf;

use crate::process::{ask, command};
use crate::steps::{Failure, Steps};
use crate::{packages, place, venv};

/// A program that tests start, and what is not tested without it.
struct Program {
    name: &'static str,
    package: &'static str,
    variable: &'static str,
    profile: &'static str,
    /// Arguments of a call that succeeds only if the program can do its work here.
    trial: &'static [&'static str],
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "chromium",
        package: "chromium",
        variable: "BONGSU_CHROMIUM",
        profile: "browser: a real EventSource",
        trial: &["--version"],
    },
    Program {
        name: "chromedriver",
        package: "chromium-driver",
        variable: "BONGSU_CHROMEDRIVER",
        profile: "browser: a real EventSource",
        trial: &["--version"],
    },
    Program {
        name: "strace",
        package: "strace",
        variable: "BONGSU_STRACE",
        profile: "syncs: counting what reaches the disk",
        // Some sandboxes have the program and forbid what it does.
        trial: &["-f", "-o", "/dev/null", "true"],
    },
];
const SCHEMATHESIS: &str = "BONGSU_SCHEMATHESIS";

/// A program that is there and works.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) variable: &'static str,
    pub(crate) path: PathBuf,
    version: String,
}

/// What the tests may count on.
#[derive(Debug, Default)]
pub(crate) struct Services {
    pub(crate) found: Vec<Found>,
}

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        return Err(steps.refuse(format!("services takes no arguments, got {argument}")));
    }
    steps.step("services", ensure).map(drop)
}

/// Every variable that names a program to the tests.
pub(crate) fn variables() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|program| program.variable).chain([SCHEMATHESIS])
}

/// Installs what is missing and says what is there.
pub(crate) fn ensure(steps: &mut Steps) -> Result<Services, String> {
    let mut wanted: Vec<_> =
        PROGRAMS.iter().filter(|program| path(program).is_none()).map(|program| program.package).collect();
    if venv::needs_package() {
        wanted.push(venv::PACKAGE);
    }
    let installed = if wanted.is_empty() { Ok(()) } else { packages::install(&wanted) };

    let mut services = Services::default();
    let mut missing = Vec::new();
    for program in &PROGRAMS {
        match find(program, &installed) {
            Ok(found) => services.found.push(found),
            Err(reason) => missing.push(format!("{} ({reason})", program.profile)),
        }
    }
    match venv::ensure(SCHEMATHESIS) {
        Ok((path, version)) => services.found.push(Found { variable: SCHEMATHESIS, path, version }),
        Err(reason) => missing.push(format!("openapi: schemathesis against the description ({reason})")),
    }

    for Found { path, version, .. } in &services.found {
        let line = format!("{version}, {}", path.display());
        println!("{line}");
        steps.used.push(line);
    }
    for line in &missing {
        println!("missing: {line}");
    }
    if place::in_ci() && !missing.is_empty() {
        return Err(format!("cannot be had, and CI leaves nothing out: {}", missing.join("; ")));
    }
    steps.not_run.append(&mut missing);
    Ok(services)
}

fn path(program: &Program) -> Option<PathBuf> {
    std::env::var_os(program.variable).map(PathBuf::from).or_else(|| place::on_path(program.name))
}

fn find(program: &Program, installed: &Result<(), String>) -> Result<Found, String> {
    let name = program.name;
    let Some(path) = path(program) else {
        let why = installed.as_ref().err().map_or("installed, but not on the search path", String::as_str);
        return Err(format!("{name} of the Debian package {} is missing: {why}", program.package));
    };
    if ask(command(&path).args(program.trial)).is_none() {
        return Err(format!("{} does not work: {name} {} fails", path.display(), program.trial.join(" ")));
    }
    let said = ask(command(&path).arg("--version")).unwrap_or_default();
    let number = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let version = format!("{name} {}", number.unwrap_or("of unknown version"));
    Ok(Found { variable: program.variable, path, version })
}
