//! PostgreSQL and MariaDB: initializes a server folder, starts the server, and runs SQL through its command line client.
//!
//! PostgreSQL refuses to run as root and runs as the user `postgres` that its package creates. An acknowledged commit is
//! on the disk unless a setting says otherwise. The folder of the run's instance contains a copy of an empty server
//! (`template`); a test that needs its own server copies the template, which is faster than initializing a folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ports::{Port, loopback};
use crate::{Instance, programs};

/// The account that tests sign in with.
pub const USER: &str = "bongsu";
const PASSWORD: &str = "pass/word:1";
const PASSWORD_IN_URL: &str = "pass%2Fword%3A1";
/// The name of the folder with an empty server, in the folder of the run's instance.
const TEMPLATE_FOLDER: &str = "template";

/// Returns the program and the arguments of a server, from its folder, its port and additional settings.
type ServerCommand = fn(&Path, u16, &[String]) -> (PathBuf, Vec<String>);

/// One kind of server.
pub struct SqlServer {
    pub name: &'static str,
    scheme: &'static str,
    /// The environment variable with the path of the template folder, see [`SqlServer::prepare`].
    pub template_variable: &'static str,
    initialize: fn(&Path),
    command: ServerCommand,
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
    /// Prepares an empty server in a folder: copies the run's template if there is one, else initializes the folder.
    pub fn prepare(&self, folder: &Path) {
        match std::env::var_os(self.template_variable) {
            Some(template) => copy(&Path::new(&template).join("."), folder),
            None => (self.initialize)(folder),
        }
        if is_root() && self.name == POSTGRES.name {
            run(Command::new("chown").arg("postgres:").arg(folder));
        }
    }

    /// The program and the arguments that start the server in a folder.
    pub fn command(&self, folder: &Path, port: u16, settings: &[String]) -> (PathBuf, Vec<String>) {
        (self.command)(folder, port, settings)
    }

    /// Runs SQL through the command line client of the server and returns its output: one line per row, columns
    /// separated by tabs. With an empty `database` the SQL runs in the default database.
    pub fn execute(&self, address: SocketAddr, database: &str, sql: &str) -> Result<String, String> {
        let mut command = (self.client)(address, database, sql);
        let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let printed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(printed(&output.stdout)) } else { Err(printed(&output.stderr)) }
    }

    /// Whether the server at this address executes queries.
    pub fn answers(&self, address: SocketAddr) -> bool {
        self.execute(address, "", "SELECT 1").is_ok_and(|printed| printed == "1")
    }

    /// The URL of a database; the database need not exist.
    pub fn url(&self, address: SocketAddr, database: &str) -> String {
        format!("{}://{USER}:{PASSWORD_IN_URL}@{address}/{database}", self.scheme)
    }
}

/// Starts the instance that all tests of the run share; its address is `host:port`.
pub(crate) fn start(server: &SqlServer, folder: &Path) -> Instance {
    let (template, own) = (folder.join(TEMPLATE_FOLDER), folder.join("server"));
    for folder in [&template, &own] {
        std::fs::create_dir(folder).expect("cannot create the folder of a server");
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

/// The template folder of an instance that was started in `folder`.
pub fn template(folder: &Path) -> PathBuf {
    folder.join(TEMPLATE_FOLDER)
}

/// Copies a folder and keeps the owners of the files.
pub fn copy(from: &Path, to: &Path) {
    run(Command::new("cp").arg("-a").args([from, to]));
}

/// Little memory, durable, loopback only. The connection limit is high because the hubs of many tests share one server.
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

/// Consumes 500 transaction ids at every start, before a client can connect. After a kill MariaDB 10.11.19 may reuse the
/// ids of committed transactions, and its purge then aborts the process (MDEV-36845). Committed changes were also seen
/// missing after a kill, probably for the same reason.
const MARIADB_SKIP_TRANSACTION_IDS: &str = "CREATE DATABASE IF NOT EXISTS skipped;\n\
    CREATE TABLE IF NOT EXISTS skipped.ids (id INT) ENGINE = InnoDB;\n\
    BEGIN NOT ATOMIC FOR i IN 1..500 DO START TRANSACTION; INSERT INTO skipped.ids VALUES (i); ROLLBACK; END FOR; END;\n";

fn initialize_postgres(folder: &Path) {
    let password = folder.join("password");
    std::fs::write(&password, PASSWORD).expect("cannot write the password file");
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres:"]).arg(folder));
    }
    let (program, mut arguments) = as_postgres_user(postgres_program("initdb"));
    let files = [path_text(&folder.join("data")), format!("--pwfile={}", password.display())];
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
    std::fs::write(folder.join("users.sql"), users).expect("cannot write users.sql");
    std::fs::create_dir(scratch_folder(folder)).expect("cannot create the folder for temporary tables");
    let mut install = Command::new(programs::path("mariadb-install-db"));
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    if is_root() {
        install.arg("--user=root");
    }
    run(install
        .arg(format!("--datadir={}", folder.join("data").display()))
        .env("TMPDIR", scratch_folder(folder)));
}

/// The folder in which MariaDB keeps temporary tables. MariaDB empties it at the start, so each server has its own.
fn scratch_folder(folder: &Path) -> PathBuf {
    folder.join("scratch")
}

fn postgres_command(folder: &Path, port: u16, settings: &[String]) -> (PathBuf, Vec<String>) {
    let (program, mut arguments) = as_postgres_user(postgres_program("postgres"));
    arguments.extend(["-D".to_owned(), path_text(&folder.join("data")), "-p".to_owned(), port.to_string()]);
    let settings =
        POSTGRES_SETTINGS.iter().map(|&setting| setting.to_owned()).chain(settings.iter().cloned());
    arguments.extend(settings.flat_map(|setting| ["-c".to_owned(), setting]));
    (program, arguments)
}

fn mariadb_command(folder: &Path, port: u16, settings: &[String]) -> (PathBuf, Vec<String>) {
    let own = [
        ("datadir", folder.join("data")),
        ("socket", folder.join("socket")),
        ("tmpdir", scratch_folder(folder)),
    ];
    let mut arguments = vec!["--no-defaults".to_owned(), format!("--port={port}")];
    arguments.extend(own.map(|(name, path)| format!("--{name}={}", path.display())));
    arguments.push(format!("--init-file={}", folder.join("users.sql").display()));
    let defaults = MARIADB_SETTINGS.iter().filter(|setting| is_root() || **setting != "user=root");
    arguments.extend(defaults.map(|setting| format!("--{setting}")));
    arguments.extend(settings.iter().map(|setting| format!("--{setting}")));
    (programs::path("mariadbd"), arguments)
}

fn psql(address: SocketAddr, database: &str, sql: &str) -> Command {
    let mut command = Command::new(postgres_program("psql"));
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

/// The path of another PostgreSQL program of the same version as the server.
pub fn postgres_program(name: &str) -> PathBuf {
    let server = programs::path("postgres");
    server.canonicalize().unwrap_or(server).with_file_name(name)
}

/// Wraps a program so that it runs as the user `postgres` if this process runs as root. `--pdeathsig` is repeated because
/// a change of the user clears the parent death signal.
fn as_postgres_user(program: PathBuf) -> (PathBuf, Vec<String>) {
    if !is_root() {
        return (program, Vec::new());
    }
    let options = ["--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig", "KILL"];
    let mut arguments: Vec<String> = options.map(str::to_owned).to_vec();
    arguments.push(path_text(&program));
    ("setpriv".into(), arguments)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}

fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{errors}", String::from_utf8_lossy(&output.stdout));
}
