//! An outbox in the database of a program whose tables have other names, set by `OUTBOX_TABLE` and its companions.

use std::sync::Arc;

use bongsu_kernel::settings::{Input, load};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id};
use bongsu_outbox::store::{MEMBERSHIPS_STEP, MIGRATIONS, PART, QUERIES};
use bongsu_outbox::tail::{Tail, TailRead};
use bongsu_outbox::{MembershipError, Options, SETTINGS, TableNames};
use bongsu_sql::{
    DataFolder, Database as File, DatabaseAddress, Dialect, Error, Migrations, Options as Server, Records,
    Store, Transaction, WriterThread, rusqlite,
};
use bongsu_testkit::sql::{Flavour, Server as TestServer};
use tempfile::TempDir;

use crate::database::Database;
use crate::locked_rows::sequence_all;
use crate::positions::{source, source_with};

/// Names that are SQL keywords, one of them with a capital letter.
const NAMES: [(&str, &str); 3] = [
    ("OUTBOX_TABLE", "Order"),
    ("OUTBOX_MEMBERSHIP_TABLE", "group"),
    ("OUTBOX_MEMBERSHIP_COLUMNS", "event,user,state"),
];

/// The database of a program.
enum ProgramDatabase {
    File(TempDir),
    /// With the schema (on MariaDB: another database) of the program's tables.
    Server(Flavour, String, String),
}

impl ProgramDatabase {
    async fn new(database: &Database) -> Self {
        let Database::Server(flavour, url) = database else {
            let folder = tempfile::tempdir().unwrap();
            drop(File::open(DataFolder::take(folder.path()).unwrap(), &Migrations::new([])).unwrap());
            return Self::File(folder);
        };
        let schema = match flavour {
            Flavour::Postgres => {
                database.execute("CREATE SCHEMA \"App\"").await;
                "App".to_owned()
            }
            Flavour::MariaDb => TestServer::database_name(&flavour.database().await).to_owned(),
        };
        Self::Server(*flavour, url.clone(), schema)
    }

    fn dialect(&self) -> Dialect {
        match self {
            Self::File(_) => Dialect::Sqlite,
            Self::Server(Flavour::Postgres, ..) => Dialect::Postgres,
            Self::Server(Flavour::MariaDb, ..) => Dialect::Mysql,
        }
    }

    /// A name as the program quotes it.
    fn quoted(&self, name: &str) -> String {
        let quote = if self.dialect() == Dialect::Postgres { '"' } else { '`' };
        let quoted = name.split('.').map(|part| format!("{quote}{part}{quote}"));
        quoted.collect::<Vec<_>>().join(".")
    }

    /// The name of a table in the schema of the program.
    fn in_schema(&self, table: &str) -> String {
        match self {
            Self::File(_) => table.to_owned(),
            Self::Server(_, _, schema) => format!("{schema}.{table}"),
        }
    }

    fn migrations(&self, settings: &[(&str, String)]) -> Migrations {
        let environment = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let values = load(SETTINGS, &Input { environment, ..Input::default() }).unwrap();
        let names = TableNames::from_settings(&values, self.dialect()).unwrap();
        let migrations = Migrations::new([MIGRATIONS]).with_names(Arc::new(names.on(self.dialect())));
        if names.has_query() { migrations.without_step(PART, MEMBERSHIPS_STEP) } else { migrations }
    }

    async fn open(&self, migrations: &Migrations) -> Result<(Records, Option<WriterThread>), Error> {
        match self {
            Self::File(folder) => {
                let file = File::open(DataFolder::take(folder.path())?, migrations)?;
                let (store, writer) = Store::start(file, &Supervisor::new())?;
                Ok((Records::embedded(store).with_names(migrations.names().clone()), Some(writer)))
            }
            Self::Server(_, url, _) => {
                let options = Server { address: DatabaseAddress::parse(url).unwrap(), max_connections: 10 };
                Ok((Records::connect(&options, migrations, &Supervisor::new()).await?, None))
            }
        }
    }

    /// Runs SQL as the program.
    async fn execute(&self, sql: &str) {
        match self {
            Self::File(folder) => {
                let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
                file.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
                file.execute_batch(sql).unwrap();
            }
            Self::Server(flavour, url, _) => {
                drop(flavour.shared().await.execute(TestServer::database_name(url), sql));
            }
        }
    }

    /// The names of all tables, views, indexes and triggers, in the schemas of the program and the hub.
    async fn object_names(&self) -> Vec<String> {
        let (flavour, url, schema) = match self {
            Self::File(folder) => {
                let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
                let mut names = file.prepare("SELECT name FROM sqlite_schema ORDER BY name").unwrap();
                let names = names.query_map([], |row| row.get(0)).unwrap();
                return names.collect::<Result<_, _>>().unwrap();
            }
            Self::Server(flavour, url, schema) => (flavour, url, schema),
        };
        let sql = match flavour {
            Flavour::Postgres => format!(
                "SELECT relname FROM pg_class WHERE relnamespace IN ('public'::regnamespace, '\"{schema}\"'::regnamespace) \
                 UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1"
            ),
            Flavour::MariaDb => {
                let schemas = format!("IN (DATABASE(), '{schema}')");
                format!(
                    "SELECT table_name FROM information_schema.tables WHERE table_schema {schemas} \
                     UNION ALL SELECT index_name FROM information_schema.statistics WHERE table_schema {schemas} \
                     UNION ALL SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema {schemas} ORDER BY 1"
                )
            }
        };
        let output = flavour.shared().await.execute(TestServer::database_name(url), &sql);
        output.lines().map(str::to_owned).collect()
    }
}

pub(crate) async fn tables_with_configured_names_work_like_the_defaults(database: Database) {
    let program = ProgramDatabase::new(&database).await;
    let (outbox, members) = (program.in_schema("Order"), program.in_schema("group"));
    let settings =
        [(NAMES[0].0, outbox.clone()), (NAMES[1].0, members.clone()), (NAMES[2].0, NAMES[2].1.to_owned())];
    let (outbox, members) = (program.quoted(&outbox), program.quoted(&members));
    let (id, text) = match program.dialect() {
        Dialect::Sqlite => ("INTEGER PRIMARY KEY", "TEXT"),
        Dialect::Postgres => ("BIGSERIAL PRIMARY KEY", "TEXT"),
        Dialect::Mysql => {
            ("BIGINT PRIMARY KEY AUTO_INCREMENT", "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin")
        }
    };
    // The program has a membership table with further columns. The hub creates the outbox table.
    let [event, user, state] = ["event", "user", "state"].map(|column| program.quoted(column));
    program
        .execute(&format!(
            "CREATE TABLE {members} (id {id}, {event} {text}, {user} {text}, {state} {text}, note {text})"
        ))
        .await;
    // Without a unique key a person could have two rows with different states.
    let before = program.object_names().await;
    let refused = program.open(&program.migrations(&settings)).await.err().expect("a refusal").to_string();
    assert!(refused.contains("needs a unique key of"), "{refused}");
    assert_eq!(program.object_names().await, before, "the database is unchanged");
    program.execute(&format!("CREATE UNIQUE INDEX own_key ON {members} ({user}, {event})")).await;
    let (records, _writer) = program.open(&program.migrations(&settings)).await.unwrap();
    let objects = program.object_names().await;
    for wanted in
        ["Order", "Order_order", "Order_of_target", "bongsu_membership_changed", "bongsu_outbox_head"]
    {
        assert!(objects.iter().any(|object| object == wanted), "{wanted} is not in {objects:?}");
    }
    for usual in ["outbox_events", "memberships", "outbox_events_order"] {
        assert!(!objects.iter().any(|object| object == usual), "{usual} is in {objects:?}");
    }

    let (_, handle) = source(&records).await;
    let (target, person) = (Id::new("a").unwrap(), Id::new("7").unwrap());
    assert!(matches!(handle.check_membership(&target, &person).await, Err(MembershipError::UnknownEvent)));
    program
        .execute(&format!("INSERT INTO {members} ({event}, {user}, {state}) VALUES ('a', '7', 'ACCEPTED')"))
        .await;
    handle.check_membership(&target, &person).await.unwrap();
    let row =
        format!("INSERT INTO {outbox} (event_type, payload, target_event_id) VALUES ('a.b', '{{}}', 'a')");
    program.execute(&row).await;
    program.execute(&format!("UPDATE {members} SET {state} = 'REJECTED' WHERE {user} = '7'")).await;
    program.execute(&row).await;
    sequence_all(&records).await;
    let TailRead::Rows { rows, .. } = Tail::from_start(records.clone()).read_next().await.unwrap() else {
        panic!("rows")
    };
    let types: Vec<&str> = rows.iter().map(|row| row.event_type.as_str()).collect();
    assert_eq!(types, ["a.b", "system.removed", "a.b"], "the removal has its place in the order");
    assert!(matches!(handle.check_membership(&target, &person).await, Err(MembershipError::NotAMember)));
    assert_eq!(handle.remove_expired().await.unwrap(), 0);
}

/// The numbers of the streams whose membership is missing, from a list of streams: number, event, person, position.
async fn missing_memberships(listed: &&'static str, tx: &mut Transaction<'_>) -> Result<Vec<u64>, Error> {
    let query = QUERIES.iter().find(|query| query.name() == "missing_membership_by_query").unwrap();
    let rows = tx.rows(query, &[("followers", (*listed).into())]).await?;
    rows.iter().map(|row| row.count(0)).collect()
}

pub(crate) async fn a_membership_query_decides_who_may_read(database: Database) {
    let program = ProgramDatabase::new(&database).await;
    let members = program.in_schema("project_members");
    let cast = if program.dialect() == Dialect::Mysql { "CHAR" } else { "TEXT" };
    let query = format!(
        "SELECT 1 FROM {} WHERE CAST(project AS {cast}) = :event_id AND CAST(account AS {cast}) = :user_id AND active = 1",
        program.quoted(&members)
    );
    let migrations = program.migrations(&[("OUTBOX_MEMBERSHIP_QUERY", query)]);
    // A query that the database refuses is found before any object is created.
    let before = program.object_names().await;
    let refused = program.open(&migrations).await.err().expect("a refusal");
    // On a server this error ends the program with exit code 3, because a restart would not help.
    let is_rejection = matches!(refused, Error::SchemaRejected(..));
    assert_eq!(is_rejection, program.dialect() != Dialect::Sqlite, "{refused}");
    let refused = refused.to_string();
    assert!(refused.contains("OUTBOX_MEMBERSHIP_QUERY") && refused.contains("project_members"), "{refused}");
    assert_eq!(program.object_names().await, before);

    let members = program.quoted(&members);
    program
        .execute(&format!(
            "CREATE TABLE {members} (project BIGINT, account BIGINT, active BIGINT); \
             INSERT INTO {members} VALUES (42, 7, 1), (42, 8, 0)"
        ))
        .await;
    // MariaDB accepts this query for one stream, but not for a list of streams. That is found before any object is
    // created, too.
    let listed = format!(
        "WITH mine AS (SELECT account FROM {members} WHERE CAST(project AS {cast}) = :event_id) \
         SELECT 1 FROM mine WHERE CAST(account AS {cast}) = :user_id"
    );
    let before = program.object_names().await;
    match program.open(&program.migrations(&[("OUTBOX_MEMBERSHIP_QUERY", listed)])).await {
        Ok(_) => assert_ne!(program.dialect(), Dialect::Mysql),
        Err(error) => {
            assert_eq!(program.dialect(), Dialect::Mysql, "{error}");
            assert!(error.to_string().contains("OUTBOX_MEMBERSHIP_QUERY"), "{error}");
            assert_eq!(program.object_names().await, before);
        }
    }
    let (records, _writer) = program.open(&migrations).await.unwrap();
    let objects = program.object_names().await;
    assert!(
        !objects.iter().any(|object| object.contains("membership")),
        "no membership table or trigger is created: {objects:?}"
    );
    let with = |options| Options { has_membership_query: true, ..options };
    let (_, handle) = source_with(&records, Clock::system(), with).await;
    let check = async |event: &str, person: &str| {
        handle.check_membership(&Id::new(event).unwrap(), &Id::new(person).unwrap()).await
    };
    assert!(check("42", "7").await.is_ok());
    assert!(matches!(check("42", "8").await, Err(MembershipError::UnknownEvent)), "no row names the event");
    let row = "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ('a.b', '{}', '42')";
    program.execute(row).await;
    for person in ["8", "07", "7x"] {
        assert!(matches!(check("42", person).await, Err(MembershipError::NotAMember)), "{person}");
    }
    let listed = r#"[[1,"42","7",0],[2,"42","8",0],[3,"43","7",0]]"#;
    let mut missing = records.read(listed, missing_memberships).await.unwrap();
    missing.sort_unstable();
    assert_eq!(missing, [2, 3]);
}

pub(crate) async fn a_database_with_other_table_names_is_refused(database: Database) {
    let program = ProgramDatabase::new(&database).await;
    let (usual, other) =
        (program.migrations(&[]), program.migrations(&NAMES.map(|(name, value)| (name, value.to_owned()))));
    drop(program.open(&usual).await.unwrap());
    let before = program.object_names().await;
    let refused = program.open(&other).await.err().expect("a refusal");
    assert!(matches!(refused, Error::Renamed(..)), "{refused}");
    let message = refused.to_string();
    assert!(
        message.contains("outbox_events, memberships")
            && message.contains("Order, group (event, user, state)"),
        "{message}"
    );
    assert_eq!(program.object_names().await, before, "the database is unchanged");
}
