//! The databases of the tests: each test gets an empty one, with the tables of this crate and two test tables.

use bongsu_kernel::task::Supervisor;
use bongsu_sql::{
    DataFolder, Database as File, DatabaseAddress, Dialect, Error, MIGRATIONS, Migration, Migrations,
    Options, Query, Records, Store, Transaction, WriterThread,
};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;
use tempfile::TempDir;

pub(crate) const TABLES: &[Migration] = &[Migration {
    part: "test",
    number: 1,
    sqlite: "CREATE TABLE test_items (id TEXT PRIMARY KEY, number INTEGER, text TEXT) STRICT;
             CREATE TABLE test_counters (id INTEGER PRIMARY KEY, n INTEGER NOT NULL) STRICT;
             INSERT INTO test_counters VALUES (1, 0), (2, 0);",
    servers: Some([
        "CREATE TABLE test_items (id TEXT COLLATE \"C\" PRIMARY KEY, number BIGINT, text TEXT);
         CREATE TABLE test_counters (id BIGINT PRIMARY KEY, n BIGINT NOT NULL);
         INSERT INTO test_counters VALUES (1, 0), (2, 0);",
        "CREATE TABLE IF NOT EXISTS test_items (id VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,
            number BIGINT, text LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin) ENGINE = InnoDB;
         CREATE TABLE IF NOT EXISTS test_counters (id BIGINT PRIMARY KEY, n BIGINT NOT NULL) ENGINE = InnoDB;
         INSERT IGNORE INTO test_counters VALUES (1, 0), (2, 0);",
    ]),
}];

pub(crate) static PUT: Query =
    Query::new("put", ["INSERT INTO test_items (id, number, text) VALUES (:id, :number, :text)"; 3]);
pub(crate) static GET: Query =
    Query::new("get", ["SELECT id, number, text FROM test_items WHERE id = :id"; 3]);
pub(crate) static LIST: Query = Query::new("list", ["SELECT id FROM test_items ORDER BY id"; 3]);
pub(crate) static COUNT: Query = Query::new("count", ["SELECT count(*) FROM test_items"; 3]);
pub(crate) static INCREMENT: Query =
    Query::new("increment", ["UPDATE test_counters SET n = n + 1 WHERE id = :id"; 3]);
pub(crate) static COUNTERS: Query = Query::new("counters", ["SELECT n FROM test_counters ORDER BY id"; 3]);

pub(crate) fn migrations() -> Migrations {
    Migrations::new([MIGRATIONS, TABLES])
}

pub(crate) trait Database: Sized {
    /// Creates an empty database. None when its engine is not installed.
    async fn start() -> Option<Self>;

    /// Opens the database as one more hub. On the embedded file, all calls share one store.
    async fn records(&self) -> Records;
}

/// Increments the first counter.
pub(crate) async fn increment((): &(), tx: &mut Transaction<'_>) -> Result<u64, Error> {
    tx.run(&INCREMENT, &[("id", 1_i64.into())]).await
}

/// Returns the ids of all items.
pub(crate) async fn item_ids(records: &Records) -> Vec<String> {
    let rows =
        records.read((), async |(): &(), tx: &mut Transaction<'_>| tx.rows(&LIST, &[]).await).await.unwrap();
    rows.iter().map(|row| row.text(0).unwrap().to_owned()).collect()
}

pub(crate) async fn counters(records: &Records) -> Vec<i64> {
    let rows = records
        .read((), async |(): &(), tx: &mut Transaction<'_>| tx.rows(&COUNTERS, &[]).await)
        .await
        .unwrap();
    rows.iter().map(|row| row.int(0).unwrap()).collect()
}

/// Inserts an item without a number.
pub(crate) async fn put(records: &Records, id: &str) -> Result<(), Error> {
    let put = records.write(id.to_owned(), async |id: &String, tx: &mut Transaction<'_>| {
        let arguments = [("id", id.as_str().into()), ("number", None::<i64>.into()), ("text", "".into())];
        tx.run(&PUT, &arguments).await.map(drop)
    });
    put.await
}

pub(crate) struct Embedded {
    store: Store,
    _writer: WriterThread,
    _folder: TempDir,
}

impl Database for Embedded {
    async fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let file = File::open(DataFolder::take(folder.path()).unwrap(), &migrations()).unwrap();
        let (store, writer) = Store::start(file, &Supervisor::new()).unwrap();
        Some(Self { store, _writer: writer, _folder: folder })
    }

    async fn records(&self) -> Records {
        Records::embedded(self.store.clone())
    }
}

pub(crate) fn options(url: &str) -> Options {
    Options { address: DatabaseAddress::parse(url).unwrap(), max_connections: 20 }
}

pub(crate) async fn connect(url: &str) -> Result<Records, Error> {
    Records::connect(&options(url), &migrations(), &Supervisor::new()).await
}

/// A database on a server.
pub(crate) trait ServerDatabase: Database {
    fn url(&self) -> &str;
    async fn server(&self) -> &'static Server;

    fn name(&self) -> &str {
        Server::database_name(self.url())
    }
}

macro_rules! server_database {
    ($name:ident, $flavour:expr, $dialect:expr) => {
        pub(crate) struct $name(String);

        impl Database for $name {
            async fn start() -> Option<Self> {
                if !tier::needs_engine($flavour.name()) {
                    return None;
                }
                Some(Self($flavour.database().await))
            }

            async fn records(&self) -> Records {
                let records = connect(&self.0).await.unwrap();
                assert_eq!(records.dialect(), $dialect);
                records
            }
        }

        impl ServerDatabase for $name {
            fn url(&self) -> &str {
                &self.0
            }

            async fn server(&self) -> &'static Server {
                $flavour.shared().await
            }
        }
    };
}

server_database!(Postgres, Flavour::Postgres, Dialect::Postgres);
server_database!(MariaDb, Flavour::MariaDb, Dialect::Mysql);
