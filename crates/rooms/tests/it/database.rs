//! An empty database, and stores of hubs that share it.

use bongsu_kernel::task::Supervisor;
use bongsu_rooms::store::sql::{MIGRATIONS, SqlStore};
use bongsu_sql::{Address, DataFolder, Database as File, Migrations, Options, Records, Store, WriterState};
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::tier;
use tempfile::TempDir;

pub(crate) enum Database {
    Embedded { store: Store, _writer: WriterState, _folder: TempDir },
    Server(String),
}

impl Database {
    /// None where it cannot be had.
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

    /// Another hub's. On the embedded file there is one hub only, whose store this is.
    pub(crate) async fn store(&self) -> SqlStore {
        SqlStore(match self {
            Self::Embedded { store, .. } => Records::embedded(store.clone()),
            Self::Server(url) => {
                let options = Options { address: Address::parse(url).unwrap(), most_connections: 10 };
                let migrations = Migrations::new([MIGRATIONS]);
                Records::connect(&options, &migrations, &Supervisor::new()).await.unwrap()
            }
        })
    }
}
