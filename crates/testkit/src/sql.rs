//! Real database servers, PostgreSQL and MariaDB, each a process of its own in a folder of its own, on a free loopback
//! port. An acknowledged change is on the disk, unless a test says otherwise.
//!
//! One server of each kind is shared by the tests of a process, with a database for each test ([`Flavour::database`]).
//! Tests that do things to a server start their own. What tests ask and order goes through the servers' own command
//! lines, so that no driver's mistake hides itself.

mod setup;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::mortal::{self, RemovedAfterwards};
use crate::ports::{Port, loopback};
use crate::{process, tier, wait};

const START: Duration = Duration::from_secs(60);
const TAIL_LINES: usize = 40;
/// Whom tests sign in as.
const USER: &str = "bongsu";
const PASSWORD: &str = "pass/word:1";
/// The same in a URL.
const PASSWORD_IN_URL: &str = "pass%2Fword%3A1";

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Postgres,
    MariaDb,
}

/// A server that nothing ever drops: it goes with the process, and its folder afterwards.
struct Lasting {
    server: Server,
    _folder: RemovedAfterwards,
}

static POSTGRES: OnceCell<Lasting> = OnceCell::const_new();
static MARIADB: OnceCell<Lasting> = OnceCell::const_new();

impl Flavour {
    /// As [`tier::needs_engine`] knows it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
        }
    }

    /// The server that all tests of this process share, started if it does not run yet.
    pub async fn shared(self) -> &'static Server {
        let cell = match self {
            Self::Postgres => &POSTGRES,
            Self::MariaDb => &MARIADB,
        };
        let lasting = cell.get_or_init(|| async {
            let server = Server::start(self).await;
            let folder = RemovedAfterwards::new(&[server.folder.path().to_owned()]);
            Lasting { server, _folder: folder }
        });
        &lasting.await.server
    }

    /// The URL of a new, empty database on the shared server.
    pub async fn database(self) -> String {
        self.shared().await.database()
    }
}

/// A running (or killed) server.
pub struct Server {
    flavour: Flavour,
    port: Port,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
    databases: AtomicU64,
    // Last, so that the process is gone before its folder goes.
    folder: TempDir,
}

impl Server {
    /// Starts one and waits until it answers.
    pub async fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, &[]).await
    }

    /// As [`Server::start`], with further settings (`fsync=off`, `sync-binlog=0`).
    pub async fn start_with(flavour: Flavour, settings: &[&str]) -> Self {
        Self::start_in(&std::env::temp_dir(), flavour, settings).await
    }

    /// As [`Server::start_with`], with its files below a folder that everybody may enter: PostgreSQL has a user of its
    /// own.
    pub async fn start_in(parent: &Path, flavour: Flavour, settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("bongsu-sql-").tempdir_in(parent);
        let folder = folder.expect("a temporary folder");
        setup::prepare(flavour, folder.path());
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let (port, child, databases) = (Port::pick(), Mutex::new(None), AtomicU64::new(0));
        let server = Self { flavour, port, settings, child, databases, folder };
        server.launch();
        server.wait_ready().await;
        server
    }

    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    pub fn addr(&self) -> SocketAddr {
        loopback(self.port.number())
    }

    /// The URL of a database that need not be there.
    pub fn url(&self, database: &str) -> String {
        self.url_at(self.addr(), database)
    }

    /// The same by another address, such as a proxy's.
    pub fn url_at(&self, address: SocketAddr, database: &str) -> String {
        let scheme = match self.flavour {
            Flavour::Postgres => "postgres",
            Flavour::MariaDb => "mysql",
        };
        format!("{scheme}://{USER}:{PASSWORD_IN_URL}@{address}/{database}")
    }

    /// The URL of a new, empty database.
    pub fn database(&self) -> String {
        let name = format!("test{}", self.databases.fetch_add(1, Ordering::Relaxed));
        self.execute("", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Runs SQL by the server's own command line in a database (empty: none in particular), and gives what it printed:
    /// a row a line, columns separated by tabs. Panics when it fails.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        self.try_execute(database, sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}\n{}", tail(&self.log())))
    }

    pub fn try_execute(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut command = self.client(database, sql);
        let output = command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) }
    }

    /// The name of the database that a URL is about.
    pub fn name_in(url: &str) -> &str {
        url.rsplit('/').next().unwrap_or_default()
    }

    /// Ends the server and all its helpers as a crash would, and waits until they are gone.
    pub async fn kill9(&self) {
        self.kill();
    }

    /// Starts the server again (killing it first if it runs) and waits until it answers: same port, same folder.
    pub async fn restart(&self) {
        self.kill();
        self.launch();
        self.wait_ready().await;
    }

    /// Copies all that the server keeps, as it is on the disk after a crash; it runs again afterwards.
    pub async fn copy(&self) -> TempDir {
        self.kill();
        let copy = tempfile::Builder::new().prefix("bongsu-sql-copy-").tempdir().expect("a temporary folder");
        setup::copy(&self.folder.path().join("data"), &copy.path().join("data"));
        self.restart().await;
        copy
    }

    /// Puts a copy in the place of what the server keeps, and starts it with that.
    pub async fn restore(&self, copy: &TempDir) {
        self.kill();
        let data = self.folder.path().join("data");
        std::fs::remove_dir_all(&data).expect("the server's files");
        setup::copy(&copy.path().join("data"), &data);
        self.restart().await;
    }

    /// Lets all of it stand still (SIGSTOP): its connections stay open and nobody answers.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// All that the server wrote since it was first started.
    pub fn log(&self) -> String {
        std::fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// The first process stands still before the others are looked for, so that none is missed.
    fn signal(&self, signal: Signal) {
        let child = self.child.lock().unwrap();
        let pid = child.as_ref().expect("the server runs").id();
        process::signal(pid, signal);
        process::descendants(pid).into_iter().for_each(|helper| process::signal(helper, signal));
    }

    fn kill(&self) {
        let Some(mut child) = self.child.lock().unwrap().take() else { return };
        process::signal(child.id(), Signal::STOP);
        let helpers = process::descendants(child.id());
        helpers.iter().for_each(|pid| process::signal(*pid, Signal::KILL));
        let _ = child.kill();
        let _ = child.wait();
        helpers.into_iter().for_each(process::wait_gone);
    }

    fn launch(&self) {
        let (program, arguments) =
            setup::command(self.flavour, self.folder.path(), self.port.number(), &self.settings);
        let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
        *self.child.lock().unwrap() = Some(mortal::start(&program, &arguments, &self.log_file()));
    }

    async fn wait_ready(&self) {
        let ready = wait::holds_within(START, || async {
            self.is_running() && self.try_execute("", "SELECT 1").is_ok_and(|said| said == "1")
        });
        assert!(ready.await, "{:?} at {} does not answer:\n{}", self.flavour, self.addr(), tail(&self.log()));
    }

    fn is_running(&self) -> bool {
        let mut child = self.child.lock().unwrap();
        child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|exit| exit.is_none()))
    }

    fn client(&self, database: &str, sql: &str) -> Command {
        let port = self.port.number().to_string();
        match self.flavour {
            Flavour::Postgres => {
                let mut command = Command::new(setup::beside_postgres("psql"));
                command.env("PGPASSWORD", PASSWORD).args(["-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1"]);
                let database = if database.is_empty() { "postgres" } else { database };
                command.args(["-h", "127.0.0.1", "-p", &port, "-U", USER, "-d", database, "-c", sql]);
                command
            }
            Flavour::MariaDb => {
                let mut command = Command::new(tier::program("mariadb"));
                command.env("MYSQL_PWD", PASSWORD).args(["--no-defaults", "--batch", "--skip-column-names"]);
                command.args(["--protocol=tcp", "-h", "127.0.0.1", "-P", &port, "-u", USER]);
                command.args(["--default-character-set=utf8mb4", "-e", sql]).arg(database);
                command
            }
        }
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{:?} at {} wrote last:\n{}", self.flavour, self.addr(), tail(&self.log()));
        }
    }
}

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

#[cfg(test)]
#[path = "sql/tests.rs"]
mod tests;
