//! How a server's folder is made and how it is started: plainly, or for PostgreSQL, which refuses to run as root, as the
//! user that its package has made.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Flavour, PASSWORD, USER};
use crate::tier;

/// Small, durable, reached by loopback only.
const POSTGRES: [&str; 8] = [
    "fsync=on",
    "synchronous_commit=on",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=32MB",
    "max_connections=200",
    "timezone=UTC",
    "log_min_messages=warning",
];
const MARIADB: [&str; 8] = [
    "user=root",
    "bind-address=127.0.0.1",
    "innodb-flush-log-at-trx-commit=1",
    "innodb-buffer-pool-size=32M",
    "innodb-log-file-size=16M",
    "max-connections=200",
    "skip-name-resolve",
    "performance-schema=OFF",
];

/// Makes an empty server in a folder.
pub(super) fn prepare(flavour: Flavour, folder: &Path) {
    let data = folder.join("data");
    match flavour {
        Flavour::Postgres => {
            let password = folder.join("password");
            std::fs::write(&password, PASSWORD).expect("a file for the password");
            if is_root() {
                done(Command::new("chown").args(["-R", "postgres:"]).arg(folder));
            }
            let (program, mut arguments) = as_its_user(beside_postgres("initdb"));
            let files = [text(&data), format!("--pwfile={}", password.display())];
            arguments.extend(
                ["-U", USER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "-D"].map(str::to_owned),
            );
            done(Command::new(program).args(arguments).args(files).current_dir("/"));
        }
        Flavour::MariaDb => {
            let users = format!(
                "CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n\
                 GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n"
            );
            std::fs::write(folder.join("users.sql"), users).expect("a file for the users");
            std::fs::create_dir(scratch(folder)).expect("a folder for temporary tables");
            let mut install = Command::new(tier::program("mariadb-install-db"));
            install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
            if is_root() {
                install.arg("--user=root");
            }
            done(install.arg(format!("--datadir={}", data.display())).env("TMPDIR", scratch(folder)));
        }
    }
}

/// Where a MariaDB keeps temporary tables: its own place, because it removes what it finds there when it starts, be it
/// another's.
fn scratch(folder: &Path) -> PathBuf {
    folder.join("scratch")
}

/// Copies a folder with the owners of its files.
pub(super) fn copy(from: &Path, to: &Path) {
    done(Command::new("cp").arg("-a").args([from, to]));
}

/// The program and its arguments.
pub(super) fn command(
    flavour: Flavour,
    folder: &Path,
    port: u16,
    settings: &[String],
) -> (PathBuf, Vec<String>) {
    let data = folder.join("data");
    match flavour {
        Flavour::Postgres => {
            let (program, mut arguments) = as_its_user(beside_postgres("postgres"));
            arguments.extend(["-D".to_owned(), text(&data), "-p".to_owned(), port.to_string()]);
            let all = POSTGRES.iter().map(|&setting| setting.to_owned()).chain(settings.iter().cloned());
            arguments.extend(all.flat_map(|setting| ["-c".to_owned(), setting]));
            (program, arguments)
        }
        Flavour::MariaDb => {
            let (socket, scratch) = (folder.join("socket"), scratch(folder));
            let own = [("datadir", text(&data)), ("socket", text(&socket)), ("tmpdir", text(&scratch))];
            let own = own.map(|(name, value)| format!("--{name}={value}"));
            let mut arguments = vec!["--no-defaults".to_owned(), format!("--port={port}")];
            arguments.extend(own);
            arguments.push(format!("--init-file={}", folder.join("users.sql").display()));
            let usual = MARIADB.iter().filter(|setting| is_root() || **setting != "user=root");
            arguments.extend(usual.map(|setting| format!("--{setting}")));
            arguments.extend(settings.iter().map(|setting| format!("--{setting}")));
            (tier::program("mariadbd"), arguments)
        }
    }
}

/// A program of the same version as the server.
pub(super) fn beside_postgres(name: &str) -> PathBuf {
    let server = tier::program("postgres");
    server.canonicalize().unwrap_or(server).with_file_name(name)
}

/// The death of our process has to be told again after the user was changed: the kernel forgets it then.
fn as_its_user(program: PathBuf) -> (PathBuf, Vec<String>) {
    if !is_root() {
        return (program, Vec::new());
    }
    let words = ["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig", "KILL"];
    let mut arguments: Vec<String> = words.map(str::to_owned).to_vec();
    arguments.push(text(&program));
    ("setpriv".into(), arguments)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn done(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{said}", String::from_utf8_lossy(&output.stdout));
}
