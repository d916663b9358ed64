//! A database for one test, and the records of the hubs that share it.

use bongsu_inbox::store::MIGRATIONS;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::{
    DataFolder, Database as File, DatabaseAddress, Migrations, Options, Records, Store, WriterThread,
    rusqlite,
};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;
use tempfile::TempDir;

/// Rows of the first schema: person 7 has an entry of a room event, one of a service, and one of a service whose event
/// id is that of a later room event.
const OLD_ROWS: &str =
    "INSERT INTO bongsu_notices (event_id, type, ref_id, actor_id, payload, created_at) VALUES
        ('42:5-0', 'comment.created', '42', NULL, '{}', 1800000000000),
        ('like-1', 'POST_LIKE', NULL, NULL, '{}', 1800000000000),
        ('42:6-0', 'POST_LIKE', NULL, NULL, '{}', 1800000000000);
    INSERT INTO bongsu_inbox (person_id, seq, notice_id, created_at)
        SELECT '7', id, id, created_at FROM bongsu_notices;
    INSERT INTO bongsu_people (person_id, last_seq, unread, version) VALUES ('7', 3, 3, 3);";

pub(crate) enum Database {
    Embedded {
        store: Store,
        _writer: WriterThread,
        _folder: TempDir,
    },
    Server(&'static Server, String),
    /// On a server of its own, for tests that read statistics of the whole server.
    Isolated(Box<Server>, String),
}

impl Database {
    /// Creates an empty database. None when the engine is not available to this run.
    pub(crate) async fn start(flavour: Option<Flavour>) -> Option<Self> {
        let Some(flavour) = flavour else {
            let folder = tempfile::tempdir().unwrap();
            let taken = DataFolder::take(folder.path()).unwrap();
            let file = File::open(taken, &Migrations::new([MIGRATIONS, bongsu_sql::MIGRATIONS])).unwrap();
            let (store, writer) = Store::start(file, &Supervisor::new()).unwrap();
            return Some(Self::Embedded { store, _writer: writer, _folder: folder });
        };
        if !tier::needs_engine(flavour.name()) {
            return None;
        }
        Some(Self::Server(flavour.shared().await, flavour.database().await))
    }

    /// Creates a database with the first schema of the inbox and [`OLD_ROWS`], and migrates it to the current schema.
    pub(crate) async fn start_with_first_schema(flavour: Option<Flavour>) -> Option<Self> {
        let first = || Migrations::new([&MIGRATIONS[..1]]);
        let Some(flavour) = flavour else {
            let folder = tempfile::tempdir().unwrap();
            drop(File::open(DataFolder::take(folder.path()).unwrap(), &first()).unwrap());
            let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
            file.execute_batch(OLD_ROWS).unwrap();
            drop(file);
            let taken = DataFolder::take(folder.path()).unwrap();
            let file = File::open(taken, &Migrations::new([MIGRATIONS, bongsu_sql::MIGRATIONS])).unwrap();
            let (store, writer) = Store::start(file, &Supervisor::new()).unwrap();
            return Some(Self::Embedded { store, _writer: writer, _folder: folder });
        };
        let started = Self::start(Some(flavour)).await?;
        if let Self::Server(server, url) = &started {
            let options = Options { address: DatabaseAddress::parse(url).unwrap(), max_connections: 1 };
            drop(Records::connect(&options, &first(), &Supervisor::new()).await.unwrap());
            server.execute(Server::database_name(url), OLD_ROWS);
        }
        Some(started)
    }

    /// Creates an empty database on a server that no other test uses.
    pub(crate) async fn start_isolated(flavour: Option<Flavour>) -> Option<Self> {
        match flavour {
            None => Self::start(None).await,
            Some(flavour) if tier::needs_engine(flavour.name()) => {
                let server = Server::start(flavour).await;
                let url = server.database();
                Some(Self::Isolated(Box::new(server), url))
            }
            Some(_) => None,
        }
    }

    /// The server and the URL of the database. None for the embedded file.
    fn server(&self) -> Option<(&Server, &str)> {
        match self {
            Self::Embedded { .. } => None,
            Self::Server(server, url) => Some((server, url)),
            Self::Isolated(server, url) => Some((server, url)),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.server().map_or("embedded", |(server, _)| server.flavour().name())
    }

    /// The records of another hub. On the embedded file all hubs of a test share the same records.
    pub(crate) async fn records(&self) -> Records {
        match self {
            Self::Embedded { store, .. } => Records::embedded(store.clone()),
            Self::Server(_, url) | Self::Isolated(_, url) => {
                let options = Options { address: DatabaseAddress::parse(url).unwrap(), max_connections: 10 };
                let (migrations, supervisor) =
                    (Migrations::new([MIGRATIONS, bongsu_sql::MIGRATIONS]), Supervisor::new());
                Records::connect(&options, &migrations, &supervisor).await.unwrap()
            }
        }
    }

    /// The number of deadlocks that the database has resolved. MariaDB counts them for the whole server, so the server
    /// must be isolated.
    pub(crate) fn deadlocks(&self) -> u64 {
        let Some((server, url)) = self.server() else { return 0 };
        assert!(matches!(self, Self::Isolated(..)), "the server is shared with other tests");
        let query = match server.flavour() {
            Flavour::Postgres => {
                "SELECT pg_stat_clear_snapshot(), deadlocks FROM pg_stat_database WHERE datname = current_database()"
            }
            Flavour::MariaDb => {
                "SELECT '', VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_DEADLOCKS'"
            }
        };
        let answer = server.execute(Server::database_name(url), query);
        let number = answer.split_whitespace().last().unwrap_or_default().trim_start_matches('|').to_owned();
        number.parse().unwrap_or_else(|_| panic!("no number: {answer:?}"))
    }
}
