//! A database for one test, and the records of the hubs that share it.

use bongsu_kernel::task::Supervisor;
use bongsu_queue::store::MIGRATIONS;
use bongsu_sql::{
    DataFolder, Database as File, DatabaseAddress, Migrations, Options, Records, Store, WriterThread,
};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::tier;
use tempfile::TempDir;

pub(crate) enum Database {
    Embedded { store: Store, _writer: WriterThread, _folder: TempDir },
    Server(String),
}

impl Database {
    /// Creates an empty database. None when the engine is not available to this run.
    pub(crate) async fn start(flavour: Option<Flavour>) -> Option<Self> {
        let Some(flavour) = flavour else {
            let folder = tempfile::tempdir().unwrap();
            let taken = DataFolder::take(folder.path()).unwrap();
            let file = File::open(taken, &Migrations::new([MIGRATIONS])).unwrap();
            let (store, writer) = Store::start(file, &Supervisor::new()).unwrap();
            return Some(Self::Embedded { store, _writer: writer, _folder: folder });
        };
        if !tier::needs_engine(flavour.name()) {
            return None;
        }
        Some(Self::Server(flavour.database().await))
    }

    /// The records of another hub. On the embedded file all hubs of a test share the same records.
    pub(crate) async fn records(&self) -> Records {
        match self {
            Self::Embedded { store, .. } => Records::embedded(store.clone()),
            Self::Server(url) => {
                let options = Options { address: DatabaseAddress::parse(url).unwrap(), max_connections: 10 };
                let migrations = Migrations::new([MIGRATIONS]);
                Records::connect(&options, &migrations, &Supervisor::new()).await.unwrap()
            }
        }
    }
}
