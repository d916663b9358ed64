//! An empty database, and the records of hubs that share it.

use bongsu_inbox::store::MIGRATIONS;
use bongsu_kernel::task::Supervisor;
use bongsu_sql::{
    Address, DataFolder, Database as File, Migrations, Options, Records, Store, WriterState, rusqlite,
};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;
use tempfile::TempDir;

/// As the first version wrote them: person 7 has an entry of a room's event, one of a service, and one of a service that used
/// the name of an event that the room was still to have.
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
        _writer: WriterState,
        _folder: TempDir,
    },
    Server(&'static Server, String),
    /// On a server of its own, for tests that ask what the whole server counts.
    Apart(Box<Server>, String),
}

impl Database {
    /// None where it cannot be had.
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

    /// As [`Database::start`], with the first schema of the inbox and [`OLD_ROWS`] in it, brought up to date afterwards.
    pub(crate) async fn start_older(flavour: Option<Flavour>) -> Option<Self> {
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
            let options = Options { address: Address::parse(url).unwrap(), most_connections: 1 };
            drop(Records::connect(&options, &first(), &Supervisor::new()).await.unwrap());
            server.execute(Server::name_in(url), OLD_ROWS);
        }
        Some(started)
    }

    /// As [`Database::start`], on a server that nobody else uses.
    pub(crate) async fn start_apart(flavour: Option<Flavour>) -> Option<Self> {
        match flavour {
            None => Self::start(None).await,
            Some(flavour) if tier::needs_engine(flavour.name()) => {
                let server = Server::start(flavour).await;
                let url = server.database();
                Some(Self::Apart(Box::new(server), url))
            }
            Some(_) => None,
        }
    }

    /// The server and the database's URL; none for the embedded file.
    fn server(&self) -> Option<(&Server, &str)> {
        match self {
            Self::Embedded { .. } => None,
            Self::Server(server, url) => Some((server, url)),
            Self::Apart(server, url) => Some((server, url)),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.server().map_or("embedded", |(server, _)| server.flavour().name())
    }

    /// Another hub's. On the embedded file there is one hub only, whose records these are.
    pub(crate) async fn records(&self) -> Records {
        match self {
            Self::Embedded { store, .. } => Records::embedded(store.clone()),
            Self::Server(_, url) | Self::Apart(_, url) => {
                let options = Options { address: Address::parse(url).unwrap(), most_connections: 10 };
                let (migrations, supervisor) =
                    (Migrations::new([MIGRATIONS, bongsu_sql::MIGRATIONS]), Supervisor::new());
                Records::connect(&options, &migrations, &supervisor).await.unwrap()
            }
        }
    }

    /// How often the database had to undo somebody's change, because two waited for each other. A MariaDB counts it for
    /// the whole server, so only one that nobody else uses can be asked.
    pub(crate) fn deadlocks(&self) -> u64 {
        let Some((server, url)) = self.server() else { return 0 };
        assert!(matches!(self, Self::Apart(..)), "other tests have deadlocks on a server that they share");
        let question = match server.flavour() {
            Flavour::Postgres => {
                "SELECT pg_stat_clear_snapshot(), deadlocks FROM pg_stat_database WHERE datname = current_database()"
            }
            Flavour::MariaDb => {
                "SELECT '', VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'INNODB_DEADLOCKS'"
            }
        };
        let answer = server.execute(Server::name_in(url), question);
        let number = answer.split_whitespace().last().unwrap_or_default().trim_start_matches('|').to_owned();
        number.parse().unwrap_or_else(|_| panic!("no number: {answer:?}"))
    }
}
