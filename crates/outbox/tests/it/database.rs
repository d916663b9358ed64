//! A database for one test, and the records of the hubs that share it.

use bongsu_kernel::task::Supervisor;
use bongsu_outbox::store::MIGRATIONS;
use bongsu_sql::{
    DataFolder, Database as File, DatabaseAddress, Error, Migrations, Options, Records, Store, WriterThread,
    rusqlite,
};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;
use tempfile::TempDir;

pub(crate) enum Database {
    Embedded { store: Store, _writer: WriterThread, folder: TempDir },
    Server(Flavour, String),
}

impl Database {
    /// Creates an empty database. None when the engine is not available to this run.
    pub(crate) async fn start(flavour: Option<Flavour>) -> Option<Self> {
        let Some(flavour) = flavour else {
            let folder = tempfile::tempdir().unwrap();
            let taken = DataFolder::take(folder.path()).unwrap();
            let file = File::open(taken, &Migrations::new([MIGRATIONS])).unwrap();
            let (store, writer) = Store::start(file, &Supervisor::new()).unwrap();
            return Some(Self::Embedded { store, _writer: writer, folder });
        };
        if !tier::needs_engine(flavour.name()) {
            return None;
        }
        Some(Self::Server(flavour, flavour.database().await))
    }

    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Embedded { .. } => "embedded",
            Self::Server(flavour, _) => flavour.name(),
        }
    }

    /// The records of another hub. On the embedded file all hubs of a test share the same records.
    pub(crate) async fn records(&self) -> Records {
        match self {
            Self::Embedded { store, .. } => Records::embedded(store.clone()),
            Self::Server(..) => self.try_records().await.unwrap(),
        }
    }

    /// Connects to the server and migrates the database.
    pub(crate) async fn try_records(&self) -> Result<Records, Error> {
        let Self::Server(_, url) = self else { panic!("the embedded database has no server") };
        let options = Options { address: DatabaseAddress::parse(url).unwrap(), max_connections: 10 };
        let (migrations, supervisor) = (Migrations::new([MIGRATIONS]), Supervisor::new());
        Records::connect(&options, &migrations, &supervisor).await
    }

    /// Runs SQL as another program would, on a connection of its own. Returns the output of a server.
    pub(crate) async fn execute(&self, sql: &str) -> String {
        match self {
            Self::Embedded { folder, .. } => {
                let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
                file.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
                file.execute_batch(sql).unwrap();
                String::new()
            }
            Self::Server(flavour, url) => flavour.shared().await.execute(Server::database_name(url), sql),
        }
    }
}
