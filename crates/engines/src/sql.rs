//! PostgreSQL and MariaDB: how a server's folder is made, how it is started, and how its own command line is called.
//!
//! PostgreSQL refuses to run as root and gets the user that its package has made. An acknowledged change is on the
//! disk unless a setting says otherwise. The folder of the run's own instance keeps a copy of the empty server
//! (`template`), from which tests that need a server of their own copy theirs instead of making it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ports::{Port, loopback};
use crate::{Instance, programs};

/// The account that tests sign in with.
pub const USER: &str = "bongsu";
const PASSWORD: &str = "pass/word:1";
const PASSWORD_IN_URL: &str = "pass%2Fword%3A1";
/// The folder of an empty server, below that of the run's instance.
const TEMPLATE_FOLDER: &str = "template";

/// The program and the arguments of a server in a folder, on a port, with further settings.
type CommandOf = fn(&Path, u16, &[String]) -> (PathBuf, Vec<String>);

/// One kind of server.
pub struct SqlServer {
    pub name: &'static str,
    scheme: &'static str,
    /// Names a folder with an empty server to copy, see [`SqlServer::prepare`].
    pub template_variable: &'static str,
    initialize: fn(&Path),
    command: CommandOf,
    client: fn(SocketAddr, &str, &str) -> Command,
}

pub const POSTGRES: SqlServer = SqlServer {
    name: "postgres",
    scheme: "postgres",
    template_variable: "BONGSU_POSTGRES_TEMPLATE",
    initialize: initialize_postgres,
    command: postgres_command,
    client: psql,
};

pub const MARIADB: SqlServer = SqlServer {
    name: "mariadb",
    scheme: "mysql",
    template_variable: "BONGSU_MARIADB_TEMPLATE",
    initialize: initialize_mariadb,
    command: mariadb_command,
    client: mariadb,
};

impl SqlServer {
    /// Makes an empty server in a folder: a copy of the run's template, or from nothing.
    pub fn prepare(&self, folder: &Path) {
        match std::env::var_os(self.template_variable) {
            Some(template) => copy(&Path::new(&template).join("."), folder),
            None => (self.initialize)(folder),
        }
        if is_root() && self.name == POSTGRES.name {
            run(Command::new("chown").arg("postgres:").arg(folder));
        }
    }

    /// The program of the server in a folder and its arguments.
    pub fn command(&self, folder: &Path, port: u16, settings: &[String]) -> (PathBuf, Vec<String>) {
        (self.command)(folder, port, settings)
    }

    /// Runs SQL by the server's own command line in a database (empty: none in particular), and returns what it printed: a
    /// row a line, columns separated by tabs.
    pub fn execute(&self, address: SocketAddr, database: &str, sql: &str) -> Result<String, String> {
        let mut command = (self.client)(address, database, sql);
        let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(printed(&output.stdout)) } else { Err(printed(&output.stderr)) }
    }

    /// Whether the server at this address runs queries.
    pub fn answers(&self, address: SocketAddr) -> bool {
        self.execute(address, "", "SELECT 1").is_ok_and(|printed| printed == "1")
    }

    /// The URL of a database, which need not exist.
    pub fn url(&self, address: SocketAddr, database: &str) -> String {
        format!("{}://{USER}:{PASSWORD_IN_URL}@{address}/{database}", self.scheme)
    }
}

/// Starts the run's own instance; its address is `host:port`.
pub(crate) fn start(server: &SqlServer, folder: &Path) -> Instance {
    let (template, own) = (folder.join(TEMPLATE_FOLDER), folder.join("server"));
    for folder in [&template, &own] {
        std::fs::create_dir(folder).expect("a folder for a server");
    }
    (server.initialize)(&template);
    copy(&template.join("."), &own);
    let port = Port::pick().number();
    let mut instance = Instance::new(loopback(port).to_string());
    let (program, arguments) = server.command(&own, port, &[]);
    instance.spawn(folder, server.name, &program, &arguments);
    instance
}

pub(crate) fn is_ready(server: &SqlServer, instance: &Instance) -> bool {
    instance.address.parse().is_ok_and(|address| server.answers(address))
}

/// The template of an instance that was started in `folder`.
pub fn template(folder: &Path) -> PathBuf {
    folder.join(TEMPLATE_FOLDER)
}

/// Copies a folder with the owners of its files.
pub fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").args([from, to]));
}

/// Small, durable, reached by loopback only. Many hubs of many tests share one server, hence the connections.
const POSTGRES_SETTINGS: [&str; 8] = [
    "fsync=on",
    "synchronous_commit=on",
    "listen_addresses=127.0.0.1",
    "unix_socket_directories=",
    "shared_buffers=32MB",
    "max_connections=400",
    "timezone=UTC",
    "log_min_messages=warning",
];
const MARIADB_SETTINGS: [&str; 8] = [
    "user=root",
    "bind-address=127.0.0.1",
    "innodb-flush-log-at-trx-commit=1",
    "innodb-buffer-pool-size=32M",
    "innodb-log-file-size=16M",
    "max-connections=400",
    "skip-name-resolve",
    "performance-schema=OFF",
];

/// Uses up transaction ids at every start, before a client can connect. After a kill MariaDB 10.11.19 may reuse the numbers of
/// committed transactions, and its purge then aborts the process (MDEV-36845). Committed changes were also seen missing after
/// a kill, probably for the same reason.
const MARIADB_SKIP_TRANSACTION_IDS: &str = "CREATE DATABASE IF NOT EXISTS skipped;\n\
    CREATE TABLE IF NOT EXISTS skipped.ids (id INT) ENGINE = InnoDB;\n\
    BEGIN NOT ATOMIC FOR i IN 1..500 DO START TRANSACTION; INSERT INTO skipped.ids VALUES (i); ROLLBACK; END FOR; END;\n";

fn initialize_postgres(folder: &Path) {
    let password = folder.join("password");
    std::fs::write(&password, PASSWORD).expect("a file for the password");
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres:"]).arg(folder));
    }
    let (program, mut arguments) = as_postgres(beside_postgres("initdb"));
    let files = [text(&folder.join("data")), format!("--pwfile={}", password.display())];
    let accounts = ["-U", USER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "-D"];
    arguments.extend(accounts.map(str::to_owned));
    run(Command::new(program).args(arguments).args(files).current_dir("/"));
}

fn initialize_mariadb(folder: &Path) {
    let users = format!(
        "CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n\
         GRANT ALL ON *.* TO '{USER}'@'%' WITH GRANT OPTION;\n\
         {MARIADB_SKIP_TRANSACTION_IDS}"
    );
    std::fs::write(folder.join("users.sql"), users).expect("a file for the users");
    std::fs::create_dir(scratch(folder)).expect("a folder for temporary tables");
    let mut install = Command::new(programs::path("mariadb-install-db"));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    if is_root() {
        install.arg("--user=root");
    }
    run(install.arg(format!("--datadir={}", folder.join("data").display())).env("TMPDIR", scratch(folder)));
}

/// Where a MariaDB keeps temporary tables. It removes what it finds there when it starts, so each server has its own.
fn scratch(folder: &Path) -> PathBuf {
    folder.join("scratch")
}

fn postgres_command(folder: &Path, port: u16, settings: &[String]) -> (PathBuf, Vec<String>) {
    let (program, mut arguments) = as_postgres(beside_postgres("postgres"));
    arguments.extend(["-D".to_owned(), text(&folder.join("data")), "-p".to_owned(), port.to_string()]);
    let all = POSTGRES_SETTINGS.iter().map(|&setting| setting.to_owned()).chain(settings.iter().cloned());
    arguments.extend(all.flat_map(|setting| ["-c".to_owned(), setting]));
    (program, arguments)
}

fn mariadb_command(folder: &Path, port: u16, settings: &[String]) -> (PathBuf, Vec<String>) {
    let own =
        [("datadir", folder.join("data")), ("socket", folder.join("socket")), ("tmpdir", scratch(folder))];
    let mut arguments = vec!["--no-defaults".to_owned(), format!("--port={port}")];
    arguments.extend(own.map(|(name, path)| format!("--{name}={}", path.display())));
    arguments.push(format!("--init-file={}", folder.join("users.sql").display()));
    let usual = MARIADB_SETTINGS.iter().filter(|setting| is_root() || **setting != "user=root");
    arguments.extend(usual.map(|setting| format!("--{setting}")));
    arguments.extend(settings.iter().map(|setting| format!("--{setting}")));
    (programs::path("mariadbd"), arguments)
}

fn psql(address: SocketAddr, database: &str, sql: &str) -> Command {
    let mut command = Command::new(beside_postgres("psql"));
    command.env("PGPASSWORD", PASSWORD).args(["-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1"]);
    let database = if database.is_empty() { "postgres" } else { database };
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["-h", &host, "-p", &port, "-U", USER, "-d", database, "-c", sql]);
    command
}

fn mariadb(address: SocketAddr, database: &str, sql: &str) -> Command {
    let mut command = Command::new(programs::path("mariadb"));
    command.env("MYSQL_PWD", PASSWORD).args(["--no-defaults", "--batch", "--skip-column-names"]);
    let (host, port) = (address.ip().to_string(), address.port().to_string());
    command.args(["--protocol=tcp", "-h", &host, "-P", &port, "-u", USER]);
    command.args(["--default-character-set=utf8mb4", "-e", sql]).arg(database);
    command
}

/// A program of the same version as the server.
pub fn beside_postgres(name: &str) -> PathBuf {
    let server = programs::path("postgres");
    server.canonicalize().unwrap_or(server).with_file_name(name)
}

/// Changing the user makes the kernel forget that the process should die with its parent, so that is said again.
fn as_postgres(program: PathBuf) -> (PathBuf, Vec<String>) {
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

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{errors}", String::from_utf8_lossy(&output.stdout));
}
