//! An empty database, and the stores of instances that share it.

use bongsu_kernel::task::Supervisor;
use bongsu_rooms::store::sql::{MIGRATIONS, SqlStore};
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
    /// Creates an empty database. None when the server is not available.
    pub(crate) async fn start(flavour: Option<Flavour>) -> Option<Self> {
        let Some(flavour) = flavour else {
            let folder = tempfile::tempdir().unwrap();
            let data_folder = DataFolder::take(folder.path()).unwrap();
            let file = File::open(data_folder, &Migrations::new([MIGRATIONS])).unwrap();
            let (store, writer) = Store::start(file, &Supervisor::new()).unwrap();
            return Some(Self::Embedded { store, _writer: writer, _folder: folder });
        };
        if !tier::needs_engine(flavour.name()) {
            return None;
        }
        Some(Self::Server(flavour.database().await))
    }

    /// The store of another instance. The embedded file has only one instance, so this returns its store.
    pub(crate) async fn store(&self) -> SqlStore {
        SqlStore(match self {
            Self::Embedded { store, .. } => Records::embedded(store.clone()),
            Self::Server(url) => {
                let options = Options { address: DatabaseAddress::parse(url).unwrap(), max_connections: 10 };
                let migrations = Migrations::new([MIGRATIONS]);
                Records::connect(&options, &migrations, &Supervisor::new()).await.unwrap()
            }
        })
    }
}
