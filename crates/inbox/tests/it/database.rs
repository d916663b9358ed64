//! An empty database, and the records of hubs that share it.

use bongsu_inbox::store::MIGRATIONS;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::{Address, DataFolder, Database as File, Migrations, Options, Records, Store, WriterState};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;
use tempfile::TempDir;

pub(crate) enum Database {
    Embedded { store: Store, _writer: WriterState, _folder: TempDir },
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
            return Some(Self::Embedded { store, _writer: writer, _folder: folder });
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
            Self::Server(_, url) => {
                let options = Options { address: Address::parse(url).unwrap(), most_connections: 10 };
                let (migrations, supervisor) = (Migrations::new([MIGRATIONS]), Supervisor::new());
                Records::connect(&options, &migrations, &supervisor).await.unwrap()
            }
        }
    }

    /// How often the database had to undo somebody's change, because two waited for each other.
    pub(crate) async fn deadlocks(&self) -> u64 {
        let Self::Server(flavour, url) = self else { return 0 };
        let question = match flavour {
            Flavour::Postgres => {
                "SELECT pg_stat_clear_snapshot(), deadlocks FROM pg_stat_database WHERE datname = current_database()"
            }
            // Of the whole server, whose other tests have none either.
            Flavour::MariaDb => {
                "SELECT '', VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_DEADLOCKS'"
            }
        };
        let answer = flavour.shared().await.execute(Server::name_in(url), question);
        let number = answer.split_whitespace().last().unwrap_or_default().trim_start_matches('|').to_owned();
        number.parse().unwrap_or_else(|_| panic!("no number: {answer:?}"))
    }
}
