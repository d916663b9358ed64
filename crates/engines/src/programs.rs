//! The programs that tests and engines start: the Debian package of each and where it is installed.

use std::path::PathBuf;

/// A program that tests need.
pub struct Program {
    pub name: &'static str,
    /// The Debian package that contains the program.
    pub package: &'static str,
    /// The tests that a run leaves out if the program is missing.
    pub purpose: &'static str,
    /// Arguments of a call that succeeds only if the program works on this machine.
    pub trial: &'static [&'static str],
}

const VERSION: &[&str] = &["--version"];

pub const PROGRAMS: [Program; 14] = [
    Program {
        name: "redis-server",
        package: "redis-server",
        purpose: "redis, cluster: fleets on Redis",
        trial: VERSION,
    },
    Program {
        name: "redis-cli",
        package: "redis-tools",
        purpose: "redis, cluster: fleets on Redis",
        trial: VERSION,
    },
    Program {
        name: "redis-sentinel",
        package: "redis-sentinel",
        purpose: "sentinel: failover",
        trial: VERSION,
    },
    Program {
        name: "postgres",
        package: "postgresql-15",
        purpose: "postgres: records on PostgreSQL",
        trial: VERSION,
    },
    // This package contains the server and `mariadb-install-db`, but no system service.
    Program {
        name: "mariadbd",
        package: "mariadb-server-core",
        purpose: "mariadb: records on MariaDB",
        trial: VERSION,
    },
    Program {
        name: "mariadb",
        package: "mariadb-client-core",
        purpose: "mariadb: records on MariaDB",
        trial: VERSION,
    },
    Program {
        name: "nginx",
        package: "nginx",
        purpose: "nginx: hubs behind a reverse proxy",
        trial: &["-v"],
    },
    Program {
        name: "openssl",
        package: "openssl",
        purpose: "nginx: a certificate for HTTPS",
        trial: &["version"],
    },
    Program { name: "chromium", package: "chromium", purpose: "browser: a real EventSource", trial: VERSION },
    Program {
        name: "chromedriver",
        package: "chromium-driver",
        purpose: "browser: a real EventSource",
        trial: VERSION,
    },
    // Some sandboxes have the program installed but forbid tracing.
    Program {
        name: "strace",
        package: "strace",
        purpose: "syncs: counting what reaches the disk",
        trial: &["-f", "-o", "/dev/null", "true"],
    },
    Program {
        name: "sqlite3",
        package: "sqlite3",
        purpose: "examples: SQL on the embedded file",
        trial: VERSION,
    },
    Program { name: "node", package: "nodejs", purpose: "examples: TypeScript", trial: VERSION },
    Program { name: "npm", package: "npm", purpose: "examples: TypeScript", trial: VERSION },
];

/// Folders where Debian installs servers; not every `PATH` contains them.
const SERVER_FOLDERS: [&str; 2] = ["/usr/sbin", "/usr/lib/postgresql/15/bin"];

/// The environment variable that overrides the path of a program: `BONGSU_REDIS_CLI` for `redis-cli`.
pub fn variable(name: &str) -> String {
    format!("BONGSU_{}", name.to_ascii_uppercase().replace('-', "_"))
}

/// The path of a program: from its [`variable`], else from `PATH`, else from the folders where Debian installs servers.
pub fn find(name: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable(name)) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SERVER_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// As [`find`], but the bare name if the program is missing: a start of the program then reports the error.
pub fn path(name: &str) -> PathBuf {
    find(name).unwrap_or_else(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_an_engine_can_be_installed() {
        for engine in &crate::ENGINES {
            for name in engine.programs {
                assert!(PROGRAMS.iter().any(|program| program.name == *name), "{}: {name}", engine.name);
            }
        }
        assert_eq!(variable("redis-cli"), "BONGSU_REDIS_CLI");
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(path("no-such-program"), PathBuf::from("no-such-program"));
    }
}
