//! `cargo xtask services`: what the tests need beside Rust: Redis, PostgreSQL, MariaDB, nginx, a browser and its driver,
//! strace, schemathesis in a Python environment of its own, and what the examples of the documents are run with.
//!
//! What is missing is installed. What cannot be had is an error in CI; elsewhere the profile that
//! needs it is named in the last lines of the run. A path in the program's variable is taken as it is.

use std::path::PathBuf;

use crate::process::{command, said};
use crate::steps::{Failure, Steps};
use crate::{node, packages, place, venv};

/// A program that tests start, and what is not tested without it.
struct Program {
    name: &'static str,
    package: &'static str,
    variable: &'static str,
    profile: &'static str,
    /// Arguments of a call that succeeds only if the program can do its work here.
    trial: &'static [&'static str],
}

/// Names the server that hubs share; without it there is no profile but the embedded one.
const REDIS_SERVER: &str = "BONGSU_REDIS_SERVER";

const PROGRAMS: [Program; 13] = [
    Program {
        name: "redis-server",
        package: "redis-server",
        variable: REDIS_SERVER,
        profile: "redis, cluster: hubs that share an engine",
        trial: &["--version"],
    },
    Program {
        name: "redis-cli",
        package: "redis-tools",
        variable: "BONGSU_REDIS_CLI",
        profile: "redis, cluster: what operators do to an engine",
        trial: &["--version"],
    },
    Program {
        name: "redis-sentinel",
        package: "redis-sentinel",
        variable: "BONGSU_REDIS_SENTINEL",
        profile: "sentinel: an engine that fails over",
        trial: &["--version"],
    },
    Program {
        name: "postgres",
        package: "postgresql-15",
        variable: "BONGSU_POSTGRES",
        profile: "postgres: records on PostgreSQL",
        trial: &["--version"],
    },
    Program {
        name: "mariadbd",
        // The server without Debian's own service around it. What makes its folder is in it, too, and is not tried: that
        // would make one.
        package: "mariadb-server-core",
        variable: "BONGSU_MARIADBD",
        profile: "mariadb: records on MariaDB",
        trial: &["--version"],
    },
    Program {
        name: "mariadb",
        package: "mariadb-client-core",
        variable: "BONGSU_MARIADB",
        profile: "mariadb: records on MariaDB",
        trial: &["--version"],
    },
    Program {
        name: "nginx",
        package: "nginx",
        variable: "BONGSU_NGINX",
        profile: "nginx: hubs behind a reverse proxy",
        trial: &["-v"],
    },
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
    Program {
        name: "sqlite3",
        package: "sqlite3",
        variable: "BONGSU_SQLITE3",
        profile: "examples: SQL on the embedded file",
        trial: &["--version"],
    },
    Program {
        name: "node",
        package: "nodejs",
        variable: "BONGSU_NODE",
        profile: "examples: TypeScript",
        trial: &["--version"],
    },
    Program {
        name: "npm",
        package: "npm",
        variable: "BONGSU_NPM",
        profile: "examples: TypeScript",
        trial: &["--version"],
    },
];

/// Programs that come with their libraries, in folders of their own: how each is had, and what is not tested without it.
struct Kit {
    variable: &'static str,
    profile: &'static str,
    ensure: fn(&Kit) -> Result<(PathBuf, String), String>,
}

const KITS: [Kit; 3] = [
    Kit {
        variable: "BONGSU_SCHEMATHESIS",
        profile: "openapi: schemathesis against the description",
        ensure: |kit| venv::ensure(kit.variable, &venv::SCHEMATHESIS),
    },
    Kit {
        variable: "BONGSU_EXAMPLE_PYTHON",
        profile: "examples: Python",
        ensure: |kit| venv::ensure(kit.variable, &venv::PYTHON),
    },
    Kit {
        variable: "BONGSU_EXAMPLE_TSC",
        profile: "examples: TypeScript",
        ensure: |kit| node::ensure(kit.variable),
    },
];

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

impl Services {
    /// Whether hubs can share an engine.
    pub(crate) fn have_redis(&self) -> bool {
        self.found.iter().any(|found| found.variable == REDIS_SERVER)
    }
}

pub(crate) fn run(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    if let Some(argument) = arguments.first() {
        return Err(steps.refuse(format!("services takes no arguments, got {argument}")));
    }
    steps.step("services", ensure).map(drop)
}

/// Every variable that names a program to the tests.
pub(crate) fn variables() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().map(|program| program.variable).chain(KITS.iter().map(|kit| kit.variable))
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
    for kit in &KITS {
        match (kit.ensure)(kit) {
            Ok((path, version)) => services.found.push(Found { variable: kit.variable, path, version }),
            Err(reason) => missing.push(format!("{} ({reason})", kit.profile)),
        }
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
    let Some(tried) = said(command(&path).args(program.trial)) else {
        return Err(format!("{} does not work: {name} {} fails", path.display(), program.trial.join(" ")));
    };
    // Not every program has a word for its version alone, and not every trial tells it.
    let number = number(&tried).or_else(|| number(&said(command(&path).arg("--version"))?));
    let version = format!("{name} {}", number.as_deref().unwrap_or("of unknown version"));
    Ok(Found { variable: program.variable, path, version })
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
