//! Real PostgreSQL and MariaDB servers, each in its own process and folder, on a free loopback port. An acknowledged
//! commit is on the disk, unless a test changes this.
//!
//! All tests share one server of each kind, with one database per test ([`Flavour::database`]). A test that kills or
//! reconfigures a server starts its own. Tests run SQL through the server's command line client, so that a mistake in a
//! database driver cannot hide itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Mutex;
use std::time::Duration;

use bongsu_engines::sql::{MARIADB, POSTGRES, SqlServer, copy};
use bongsu_engines::{read_log, tail};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::OnceCell;

use crate::ports::{Port, loopback};
use crate::{child_process, process, shared, wait};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The kind of database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Postgres,
    MariaDb,
}

impl Flavour {
    /// The name that [`crate::tier::needs_engine`] expects.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MariaDb => "mariadb",
        }
    }

    /// The server that all tests share.
    pub async fn shared(self) -> &'static Server {
        static POSTGRES: OnceCell<Server> = OnceCell::const_new();
        static MARIADB: OnceCell<Server> = OnceCell::const_new();
        let cell = match self {
            Self::Postgres => &POSTGRES,
            Self::MariaDb => &MARIADB,
        };
        cell.get_or_init(|| async {
            let address = shared::address(self.name()).await;
            let addr = address.parse().unwrap_or_else(|_| panic!("{address:?} is not a server address"));
            Server { flavour: self, addr, own: None }
        })
        .await
    }

    /// Creates an empty database on the shared server and returns its URL.
    pub async fn database(self) -> String {
        self.shared().await.database()
    }

    fn sql_server(self) -> &'static SqlServer {
        match self {
            Self::Postgres => &POSTGRES,
            Self::MariaDb => &MARIADB,
        }
    }
}

/// A running or killed server: the one that all tests share, or one that the test started.
pub struct Server {
    flavour: Flavour,
    addr: SocketAddr,
    own: Option<OwnServer>,
}

/// The process and folder of a server that a test started itself.
struct OwnServer {
    port: Port,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
    // Last field, so that the process ends before its folder is removed.
    folder: TempDir,
}

impl Server {
    /// Starts a server and waits until it executes queries.
    pub async fn start(flavour: Flavour) -> Self {
        Self::start_with(flavour, &[]).await
    }

    /// As [`Server::start`], with additional settings (`fsync=off`, `sync-binlog=0`).
    pub async fn start_with(flavour: Flavour, settings: &[&str]) -> Self {
        Self::start_in(&std::env::temp_dir(), flavour, settings).await
    }

    /// As [`Server::start_with`], with its files below `parent`. Every user must be able to enter `parent`, because
    /// PostgreSQL runs as its own user.
    pub async fn start_in(parent: &Path, flavour: Flavour, settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("bongsu-sql-").tempdir_in(parent);
        let folder = folder.expect("cannot create a temporary folder");
        flavour.sql_server().prepare(folder.path());
        let settings = settings.iter().map(|&setting| setting.to_owned()).collect();
        let own = OwnServer { port: Port::pick(), settings, child: Mutex::new(None), folder };
        let server = Self { flavour, addr: loopback(own.port.number()), own: Some(own) };
        server.launch();
        server.wait_ready().await;
        server
    }

    pub fn flavour(&self) -> Flavour {
        self.flavour
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The URL of a database; the database need not exist.
    pub fn url(&self, database: &str) -> String {
        self.url_at(self.addr(), database)
    }

    /// As [`Server::url`], at another address, such as that of a proxy.
    pub fn url_at(&self, address: SocketAddr, database: &str) -> String {
        self.flavour.sql_server().url(address, database)
    }

    /// Creates an empty database and returns its URL.
    pub fn database(&self) -> String {
        // A random name, because other test processes create databases on the shared server at the same time.
        let number = getrandom::u64().expect("cannot read random bytes from the system");
        let name = format!("t{number:x}");
        self.execute("", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Runs SQL through the server's command line client and returns its output: one line per row, columns separated by
    /// tabs. With an empty `database` the SQL runs in the default database. Panics if the SQL fails.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        self.try_execute(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub fn try_execute(&self, database: &str, sql: &str) -> Result<String, String> {
        self.flavour.sql_server().execute(self.addr, database, sql)
    }

    /// The name of the database in a URL.
    pub fn database_name(url: &str) -> &str {
        url.rsplit('/').next().unwrap_or_default()
    }

    /// Kills the server and all of its processes (SIGKILL) and waits until they are gone.
    pub async fn kill9(&self) {
        self.kill();
    }

    /// Restarts the server on the same port and folder (kills it first if it runs) and waits until it executes queries.
    pub async fn restart(&self) {
        self.kill();
        self.launch();
        self.wait_ready().await;
    }

    /// Kills the server, copies its data folder as it is on the disk after a crash, and restarts the server.
    pub async fn copy(&self) -> TempDir {
        self.kill();
        let copied = tempfile::Builder::new()
            .prefix("bongsu-sql-copy-")
            .tempdir()
            .expect("cannot create a temporary folder");
        copy(&self.own().folder.path().join("data"), &copied.path().join("data"));
        self.restart().await;
        copied
    }

    /// Replaces the data folder of the server by a copy and restarts the server.
    pub async fn restore(&self, copied: &TempDir) {
        self.kill();
        let data = self.own().folder.path().join("data");
        std::fs::remove_dir_all(&data).expect("cannot remove the data folder");
        copy(&copied.path().join("data"), &data);
        self.restart().await;
    }

    /// Stops all processes of the server (SIGSTOP): connections stay open and get no response.
    pub fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the processes (SIGCONT).
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    /// The log of the server since its first start.
    pub fn log(&self) -> String {
        read_log(&self.own().log_file())
    }

    fn own(&self) -> &OwnServer {
        self.own.as_ref().expect("other tests use the shared server; start one with Server::start")
    }

    /// Signals the main process first and then its descendants: a stopped main process starts no more.
    fn signal(&self, signal: Signal) {
        let child = self.own().child.lock().unwrap();
        let pid = child.as_ref().expect("the server does not run").id();
        process::signal(pid, signal);
        process::descendants(pid).into_iter().for_each(|descendant| process::signal(descendant, signal));
    }

    fn kill(&self) {
        if let Some(mut child) = self.own().child.lock().unwrap().take() {
            process::kill_tree(&mut child);
        }
    }

    fn launch(&self) {
        let own = self.own();
        let sql_server = self.flavour.sql_server();
        let (program, arguments) = sql_server.command(own.folder.path(), own.port.number(), &own.settings);
        let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
        *own.child.lock().unwrap() = Some(child_process::start(&program, &arguments, &own.log_file()));
    }

    async fn wait_ready(&self) {
        let (sql_server, addr) = (self.flavour.sql_server(), self.addr);
        let ready = wait::holds_within(START_TIMEOUT, || async {
            // The command line client blocks the thread, so it runs outside the runtime's threads.
            let answers = tokio::task::spawn_blocking(move || sql_server.answers(addr));
            self.own().is_running() && answers.await.unwrap_or(false)
        });
        assert!(ready.await, "{:?} at {addr} is not ready:\n{}", self.flavour, tail(&self.log()));
    }
}

impl OwnServer {
    fn is_running(&self) -> bool {
        let mut child = self.child.lock().unwrap();
        child.as_mut().is_some_and(|child| child.try_wait().is_ok_and(|exit| exit.is_none()))
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.own.is_none() {
            return;
        }
        self.kill();
        if std::thread::panicking() {
            eprintln!("end of the log of {:?} at {}:\n{}", self.flavour, self.addr, tail(&self.log()));
        }
    }
}

#[cfg(test)]
#[path = "sql/tests.rs"]
mod tests;
