//! An empty database, and the records of hubs that share it.

use bongsu_kernel::task::Supervisor;
use bongsu_outbox::store::MIGRATIONS;
use bongsu_sql::{
    Address, DataFolder, Database as File, Error, Migrations, Options, Records, Store, WriterState, rusqlite,
};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;
use tempfile::TempDir;

pub(crate) enum Database {
    Embedded { store: Store, _writer: WriterState, folder: TempDir },
    Server(Flavour, String),
}

impl Database {
    /// None where it cannot be had.
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

    /// Another hub's. On the embedded file there is one hub only, whose records these are.
    pub(crate) async fn records(&self) -> Records {
        match self {
            Self::Embedded { store, .. } => Records::embedded(store.clone()),
            Self::Server(..) => self.try_records().await.unwrap(),
        }
    }

    /// Those of a server, if it can be had.
    pub(crate) async fn try_records(&self) -> Result<Records, Error> {
        let Self::Server(_, url) = self else { panic!("there is no server") };
        let options = Options { address: Address::parse(url).unwrap(), most_connections: 10 };
        let (migrations, supervisor) = (Migrations::new([MIGRATIONS]), Supervisor::new());
        Records::connect(&options, &migrations, &supervisor).await
    }

    /// Runs SQL as another program does.
    pub(crate) async fn execute(&self, sql: &str) -> String {
        match self {
            Self::Embedded { folder, .. } => {
                let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
                file.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
                file.execute_batch(sql).unwrap();
                String::new()
            }
            Self::Server(flavour, url) => flavour.shared().await.execute(Server::name_in(url), sql),
        }
    }
}
