//! An outbox in the database of a program that has tables of its own: they keep their names.

use std::sync::Arc;

use bongsu_kernel::settings::{Input, load};
use bongsu_kernel::task::Supervisor;
use bongsu_kernel::{Clock, Id};
use bongsu_outbox::store::{MEMBERSHIPS_STEP, MIGRATIONS, PART, QUERIES};
use bongsu_outbox::tail::{Read, Tail};
use bongsu_outbox::{Options, RightError, SETTINGS, TableNames};
use bongsu_sql::{
    Address, DataFolder, Database as File, Dialect, Error, Migrations, Options as Server, Records, Store,
    Transaction, WriterState, rusqlite,
};
use bongsu_testkit::sql::{Flavour, Server as TestServer};
use tempfile::TempDir;

use crate::database::Database;
use crate::held::sequence_all;
use crate::places::{source, source_with};

/// Words that SQL has itself, one of them with a capital letter.
const NAMES: [(&str, &str); 3] = [
    ("OUTBOX_TABLE", "Order"),
    ("OUTBOX_MEMBERSHIP_TABLE", "group"),
    ("OUTBOX_MEMBERSHIP_COLUMNS", "event,user,state"),
];

/// The database of a program.
enum Place {
    File(TempDir),
    /// With a schema (on MariaDB: another database) that the program keeps its tables in.
    Server(Flavour, String, String),
}

impl Place {
    async fn of(database: &Database) -> Self {
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
            Flavour::MariaDb => TestServer::name_in(&flavour.database().await).to_owned(),
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

    /// As the program writes a name.
    fn quoted(&self, name: &str) -> String {
        let quote = if self.dialect() == Dialect::Postgres { '"' } else { '`' };
        let quoted = name.split('.').map(|part| format!("{quote}{part}{quote}"));
        quoted.collect::<Vec<_>>().join(".")
    }

    /// A table where the program keeps its tables.
    fn own(&self, table: &str) -> String {
        match self {
            Self::File(_) => table.to_owned(),
            Self::Server(_, _, schema) => format!("{schema}.{table}"),
        }
    }

    fn migrations(&self, settings: &[(&str, String)]) -> Migrations {
        let environment = settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        let values = load(SETTINGS, &Input { environment, ..Input::default() }).unwrap();
        let names = TableNames::from_settings(&values, self.dialect()).unwrap();
        let migrations = Migrations::new([MIGRATIONS]).named(Arc::new(names.on(self.dialect())));
        if names.has_query() { migrations.without_step(PART, MEMBERSHIPS_STEP) } else { migrations }
    }

    async fn open(&self, migrations: &Migrations) -> Result<(Records, Option<WriterState>), Error> {
        match self {
            Self::File(folder) => {
                let file = File::open(DataFolder::take(folder.path())?, migrations)?;
                let (store, writer) = Store::start(file, &Supervisor::new())?;
                Ok((Records::embedded(store).named(migrations.names().clone()), Some(writer)))
            }
            Self::Server(_, url, _) => {
                let options = Server { address: Address::parse(url).unwrap(), most_connections: 10 };
                Ok((Records::connect(&options, migrations, &Supervisor::new()).await?, None))
            }
        }
    }

    /// Runs SQL as the program does.
    async fn execute(&self, sql: &str) {
        match self {
            Self::File(folder) => {
                let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
                file.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
                file.execute_batch(sql).unwrap();
            }
            Self::Server(flavour, url, _) => {
                drop(flavour.shared().await.execute(TestServer::name_in(url), sql));
            }
        }
    }

    /// Tables, views, indexes and triggers by their names, in all schemas of the program and the hub.
    async fn things(&self) -> Vec<String> {
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
                let here = format!("IN (DATABASE(), '{schema}')");
                format!(
                    "SELECT table_name FROM information_schema.tables WHERE table_schema {here} \
                     UNION ALL SELECT index_name FROM information_schema.statistics WHERE table_schema {here} \
                     UNION ALL SELECT trigger_name FROM information_schema.triggers WHERE trigger_schema {here} ORDER BY 1"
                )
            }
        };
        let said = flavour.shared().await.execute(TestServer::name_in(url), &sql);
        said.lines().map(str::to_owned).collect()
    }
}

pub(crate) async fn tables_of_other_names_are_used_like_the_usual_ones(database: Database) {
    let place = Place::of(&database).await;
    let (outbox, members) = (place.own("Order"), place.own("group"));
    let settings =
        [(NAMES[0].0, outbox.clone()), (NAMES[1].0, members.clone()), (NAMES[2].0, NAMES[2].1.to_owned())];
    let (outbox, members) = (place.quoted(&outbox), place.quoted(&members));
    let (id, text) = match place.dialect() {
        Dialect::Sqlite => ("INTEGER PRIMARY KEY", "TEXT"),
        Dialect::Postgres => ("BIGSERIAL PRIMARY KEY", "TEXT"),
        Dialect::Mysql => {
            ("BIGINT PRIMARY KEY AUTO_INCREMENT", "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin")
        }
    };
    // A table of members that has more columns; its outbox the hub makes.
    let [event, user, state] = ["event", "user", "state"].map(|column| place.quoted(column));
    place
        .execute(&format!(
            "CREATE TABLE {members} (id {id}, {event} {text}, {user} {text}, {state} {text}, note {text})"
        ))
        .await;
    // Of two rows for one person nobody could say which one counts.
    let before = place.things().await;
    let refused = place.open(&place.migrations(&settings)).await.err().expect("a refusal").to_string();
    assert!(refused.contains("needs a unique key of"), "{refused}");
    assert_eq!(place.things().await, before, "nothing was changed");
    place.execute(&format!("CREATE UNIQUE INDEX own_key ON {members} ({user}, {event})")).await;
    let (records, _held) = place.open(&place.migrations(&settings)).await.unwrap();
    let things = place.things().await;
    for wanted in
        ["Order", "Order_order", "Order_of_target", "bongsu_membership_changed", "bongsu_outbox_head"]
    {
        assert!(things.iter().any(|thing| thing == wanted), "{wanted} is not in {things:?}");
    }
    for usual in ["outbox_events", "memberships", "outbox_events_order"] {
        assert!(!things.iter().any(|thing| thing == usual), "{usual} is in {things:?}");
    }

    let (_, handle) = source(&records).await;
    let (target, person) = (Id::new("a").unwrap(), Id::new("7").unwrap());
    assert!(matches!(handle.may_follow(&target, &person).await, Err(RightError::NoEvent)));
    place
        .execute(&format!("INSERT INTO {members} ({event}, {user}, {state}) VALUES ('a', '7', 'ACCEPTED')"))
        .await;
    handle.may_follow(&target, &person).await.unwrap();
    let row =
        format!("INSERT INTO {outbox} (event_type, payload, target_event_id) VALUES ('a.b', '{{}}', 'a')");
    place.execute(&row).await;
    place.execute(&format!("UPDATE {members} SET {state} = 'REJECTED' WHERE {user} = '7'")).await;
    place.execute(&row).await;
    sequence_all(&records).await;
    let Read::Rows { rows, .. } = Tail::from_start(records.clone()).read_on().await.unwrap() else {
        panic!("rows")
    };
    let types: Vec<&str> = rows.iter().map(|row| row.event_type.as_str()).collect();
    assert_eq!(types, ["a.b", "system.removed", "a.b"], "a withdrawal has its place");
    assert!(matches!(handle.may_follow(&target, &person).await, Err(RightError::Stranger)));
    assert_eq!(handle.forget_old().await.unwrap(), 0);
}

/// What a list of streams (a number, an event, a person, a position) gives.
async fn without_right(listed: &&'static str, tx: &mut Transaction<'_>) -> Result<Vec<u64>, Error> {
    let query = QUERIES.iter().find(|query| query.name() == "without_right_by_query").unwrap();
    let rows = tx.rows(query, &[("followers", (*listed).into())]).await?;
    rows.iter().map(|row| row.count(0)).collect()
}

pub(crate) async fn a_query_says_who_may_follow(database: Database) {
    let place = Place::of(&database).await;
    let members = place.own("project_members");
    let cast = if place.dialect() == Dialect::Mysql { "CHAR" } else { "TEXT" };
    let query = format!(
        "SELECT 1 FROM {} WHERE CAST(project AS {cast}) = :event_id AND CAST(account AS {cast}) = :user_id AND active = 1",
        place.quoted(&members)
    );
    let migrations = place.migrations(&[("OUTBOX_MEMBERSHIP_QUERY", query)]);
    // A query that the database does not understand is found before anything is made.
    let before = place.things().await;
    let refused = place.open(&migrations).await.err().expect("a refusal").to_string();
    assert!(refused.contains("OUTBOX_MEMBERSHIP_QUERY") && refused.contains("project_members"), "{refused}");
    assert_eq!(place.things().await, before);

    let members = place.quoted(&members);
    place
        .execute(&format!(
            "CREATE TABLE {members} (project BIGINT, account BIGINT, active BIGINT); \
             INSERT INTO {members} VALUES (42, 7, 1), (42, 8, 0)"
        ))
        .await;
    // MariaDB takes this about one stream, and not about a list of them: that is found before anything is made, too.
    let listed = format!(
        "WITH mine AS (SELECT account FROM {members} WHERE CAST(project AS {cast}) = :event_id) \
         SELECT 1 FROM mine WHERE CAST(account AS {cast}) = :user_id"
    );
    let before = place.things().await;
    match place.open(&place.migrations(&[("OUTBOX_MEMBERSHIP_QUERY", listed)])).await {
        Ok(_) => assert_ne!(place.dialect(), Dialect::Mysql),
        Err(error) => {
            assert_eq!(place.dialect(), Dialect::Mysql, "{error}");
            assert!(error.to_string().contains("OUTBOX_MEMBERSHIP_QUERY"), "{error}");
            assert_eq!(place.things().await, before);
        }
    }
    let (records, _held) = place.open(&migrations).await.unwrap();
    let things = place.things().await;
    assert!(!things.iter().any(|thing| thing.contains("membership")), "nothing is made for it: {things:?}");
    let with = |options| Options { has_membership_query: true, ..options };
    let (_, handle) = source_with(&records, Clock::system(), with).await;
    let may = async |event: &str, person: &str| {
        handle.may_follow(&Id::new(event).unwrap(), &Id::new(person).unwrap()).await
    };
    assert!(may("42", "7").await.is_ok());
    assert!(matches!(may("42", "8").await, Err(RightError::NoEvent)), "only rows tell of an event");
    let row = "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ('a.b', '{}', '42')";
    place.execute(row).await;
    for person in ["8", "07", "7x"] {
        assert!(matches!(may("42", person).await, Err(RightError::Stranger)), "{person}");
    }
    let listed = r#"[[1,"42","7",0],[2,"42","8",0],[3,"43","7",0]]"#;
    let mut without = records.read(listed, without_right).await.unwrap();
    without.sort_unstable();
    assert_eq!(without, [2, 3]);
}

pub(crate) async fn a_database_whose_tables_have_other_names_is_refused(database: Database) {
    let place = Place::of(&database).await;
    let (usual, other) =
        (place.migrations(&[]), place.migrations(&NAMES.map(|(name, value)| (name, value.to_owned()))));
    drop(place.open(&usual).await.unwrap());
    let before = place.things().await;
    let refused = place.open(&other).await.err().expect("a refusal");
    assert!(matches!(refused, Error::Renamed(..)), "{refused}");
    let told = refused.to_string();
    assert!(
        told.contains("outbox_events, memberships") && told.contains("Order, group (event, user, state)"),
        "{told}"
    );
    assert_eq!(place.things().await, before, "nothing was changed");
}
