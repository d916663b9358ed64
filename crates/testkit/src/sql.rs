//! Real database servers, PostgreSQL and MariaDB, each a process of its own in a folder of its own, on a free loopback
//! port. An acknowledged change is on the disk, unless a test says otherwise.
//!
//! One server of each kind is shared by all tests, with a database for each ([`Flavour::database`]). Tests that do things
//! to a server start their own. What tests ask and order goes through the servers' own command
//! lines, so that no driver's mistake hides itself.

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
use crate::{mortal, process, shared, wait};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    Postgres,
    MariaDb,
}

impl Flavour {
    /// As [`tier::needs_engine`] knows it.
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
            let addr = address.parse().unwrap_or_else(|_| panic!("{address:?} is no address of a server"));
            Server { flavour: self, addr, own: None }
        })
        .await
    }

    /// The URL of a new, empty database on the shared server.
    pub async fn database(self) -> String {
        self.shared().await.database()
    }

    fn recipe(self) -> &'static SqlServer {
        match self {
            Self::Postgres => &POSTGRES,
            Self::MariaDb => &MARIADB,
        }
    }
}

/// A running (or killed) server: one that all tests share, or the test's own.
pub struct Server {
    flavour: Flavour,
    addr: SocketAddr,
    own: Option<OwnServer>,
}

/// What a test has of a server that it started itself.
struct OwnServer {
    port: Port,
    settings: Vec<String>,
    child: Mutex<Option<Child>>,
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
        flavour.recipe().prepare(folder.path());
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

    /// The URL of a database that need not be there.
    pub fn url(&self, database: &str) -> String {
        self.url_at(self.addr(), database)
    }

    /// The same by another address, such as a proxy's.
    pub fn url_at(&self, address: SocketAddr, database: &str) -> String {
        self.flavour.recipe().url(address, database)
    }

    /// The URL of a new, empty database.
    pub fn database(&self) -> String {
        // Other test processes make databases on a shared server at the same time.
        let name = format!("t{:x}", getrandom::u64().expect("the system gives random bytes"));
        self.execute("", &format!("CREATE DATABASE {name}"));
        self.url(&name)
    }

    /// Runs SQL by the server's own command line in a database (empty: none in particular), and gives what it printed:
    /// a row a line, columns separated by tabs. Panics when it fails.
    pub fn execute(&self, database: &str, sql: &str) -> String {
        self.try_execute(database, sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    pub fn try_execute(&self, database: &str, sql: &str) -> Result<String, String> {
        self.flavour.recipe().execute(self.addr, database, sql)
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
        let copied =
            tempfile::Builder::new().prefix("bongsu-sql-copy-").tempdir().expect("a temporary folder");
        copy(&self.own().folder.path().join("data"), &copied.path().join("data"));
        self.restart().await;
        copied
    }

    /// Puts a copy in the place of what the server keeps, and starts it with that.
    pub async fn restore(&self, copied: &TempDir) {
        self.kill();
        let data = self.own().folder.path().join("data");
        std::fs::remove_dir_all(&data).expect("the server's files");
        copy(&copied.path().join("data"), &data);
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
        read_log(&self.own().log_file())
    }

    fn own(&self) -> &OwnServer {
        self.own.as_ref().expect("a server of the test's own: others use the shared one meanwhile")
    }

    /// The first process stands still before the others are looked for, so that none is missed.
    fn signal(&self, signal: Signal) {
        let child = self.own().child.lock().unwrap();
        let pid = child.as_ref().expect("the server runs").id();
        process::signal(pid, signal);
        process::descendants(pid).into_iter().for_each(|helper| process::signal(helper, signal));
    }

    fn kill(&self) {
        if let Some(mut child) = self.own().child.lock().unwrap().take() {
            process::kill_tree(&mut child);
        }
    }

    fn launch(&self) {
        let own = self.own();
        let recipe = self.flavour.recipe();
        let (program, arguments) = recipe.command(own.folder.path(), own.port.number(), &own.settings);
        let arguments: Vec<&Path> = arguments.iter().map(Path::new).collect();
        *own.child.lock().unwrap() = Some(mortal::start(&program, &arguments, &own.log_file()));
    }

    async fn wait_ready(&self) {
        let (recipe, addr) = (self.flavour.recipe(), self.addr);
        let ready = wait::holds_within(START_TIMEOUT, || async {
            // The command line of a server blocks; other tasks of the test go on meanwhile.
            let answers = tokio::task::spawn_blocking(move || recipe.answers(addr));
            self.own().is_running() && answers.await.unwrap_or(false)
        });
        assert!(ready.await, "{:?} at {addr} does not answer:\n{}", self.flavour, tail(&self.log()));
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
            eprintln!("{:?} at {} wrote last:\n{}", self.flavour, self.addr, tail(&self.log()));
        }
    }
}

#[cfg(test)]
#[path = "sql/tests.rs"]
mod tests;
