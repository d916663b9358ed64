//! Outbox tables that a program created before the hub: the migrations adapt them, or refuse them without changing
//! them.

use bongsu_kernel::task::Supervisor;
use bongsu_outbox::sequence::sequence_batch;
use bongsu_outbox::store::MIGRATIONS;
use bongsu_outbox::tail::{Tail, TailRead};
use bongsu_sql::{DataFolder, Database as File, Migrations, Records, Store, rusqlite};

use bongsu_testkit::sql::{Flavour, Server};

use crate::database::Database;
use crate::hostile::file_with;
use crate::locked_rows::sequence_all;

const ROWS: &str = "INSERT INTO outbox_events (event_type, payload, status) VALUES \
    ('a.b', '{\"event_id\":\"7\",\"x\":1}', 'DONE'), ('a.b', '{\"event_id\":8}', 'PENDING'), \
    ('a.b', '{\"other\":1}', 'PENDING'), ('a.b', '{\"event_id\":null}', 'FAILED')";

pub(crate) async fn a_table_without_targets_is_migrated(database: Database) {
    let (records, _guards) = match &database {
        Database::Embedded { .. } => {
            let folder = tempfile::tempdir().unwrap();
            let no_migrations = Migrations::new([]);
            drop(File::open(DataFolder::take(folder.path()).unwrap(), &no_migrations).unwrap());
            let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
            file.execute_batch(
                "CREATE TABLE outbox_events (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT, status TEXT, \
                 created_at TEXT DEFAULT '2026-02-16 10:30:00')",
            )
            .unwrap();
            file.execute_batch(ROWS).unwrap();
            file.execute_batch("INSERT INTO outbox_events (event_type, payload) VALUES ('a.b', 'no json')")
                .unwrap();
            drop(file);
            let taken = DataFolder::take(folder.path()).unwrap();
            let (store, writer) =
                Store::start(File::open(taken, &Migrations::new([MIGRATIONS])).unwrap(), &Supervisor::new())
                    .unwrap();
            (Records::embedded(store), Some((writer, folder)))
        }
        Database::Server(flavour, _) => {
            let (id, created, payload) = match flavour.name() {
                "postgres" => {
                    ("BIGSERIAL PRIMARY KEY", "TIMESTAMPTZ DEFAULT '2026-02-16 10:30:00+00'", "JSONB")
                }
                _ => (
                    "BIGINT PRIMARY KEY AUTO_INCREMENT",
                    "DATETIME DEFAULT '2026-02-16 10:30:00'",
                    "LONGTEXT",
                ),
            };
            database
                .execute(&format!(
                    "CREATE TABLE outbox_events (id {id}, event_type VARCHAR(100), payload {payload}, \
                     status VARCHAR(20) DEFAULT 'PENDING', created_at {created})"
                ))
                .await;
            database.execute(ROWS).await;
            if flavour.name() != "postgres" {
                database
                    .execute("INSERT INTO outbox_events (event_type, payload) VALUES ('a.b', 'no json')")
                    .await;
            } else {
                database
                    .execute("INSERT INTO outbox_events (event_type, payload) VALUES ('a.b', '[1]')")
                    .await;
            }
            (database.records().await, None)
        }
    };
    sequence_all(&records).await;
    let TailRead::Rows { rows, .. } = Tail::from_start(records).read_next().await.unwrap() else {
        panic!("rows")
    };
    let targets: Vec<&str> = rows.iter().map(|row| row.target.as_str()).collect();
    assert_eq!(targets, ["7", "8", "-", "-", "-"]);
    let positions: Vec<u64> = rows.iter().map(|row| row.position).collect();
    assert_eq!(positions, [1, 2, 3, 4, 5]);
    for row in rows {
        assert_eq!(row.created_at, 1_771_237_800_000, "{row:?}");
    }
}

pub(crate) async fn unusable_tables_are_refused_and_left_unchanged(database: Database) {
    let Database::Server(flavour, url) = &database else {
        dependent_objects_of_an_embedded_table_are_not_lost();
        return;
    };
    let count = "SELECT COUNT(*) FROM information_schema.columns WHERE table_name = 'outbox_events'";
    let count = match flavour {
        Flavour::Postgres => count.to_owned(),
        Flavour::MariaDb => format!("{count} AND table_schema = '{}'", Server::database_name(url)),
    };
    let (id, own) = match flavour {
        Flavour::Postgres => ("id BIGSERIAL PRIMARY KEY", ("id has to be a key", "id BIGINT DEFAULT 1", "")),
        Flavour::MariaDb => {
            let id = "id BIGINT PRIMARY KEY AUTO_INCREMENT";
            (id, ("outbox_events has to be an InnoDB table", id, "ENGINE = MyISAM"))
        }
    };
    let with_id = |more: &str| format!("{id}, {more}");
    let with_key = match flavour {
        Flavour::Postgres => "id BIGSERIAL, tenant BIGINT, PRIMARY KEY (tenant, id)",
        Flavour::MariaDb => "id BIGINT AUTO_INCREMENT, tenant BIGINT, PRIMARY KEY (tenant, id), KEY (id)",
    };
    let cases = [
        ("id has to be a whole number", "id CHAR(36)".to_owned(), ""),
        ("whole number", with_id("created_at VARCHAR(30)"), ""),
        ("id has to be", "id BIGINT PRIMARY KEY".to_owned(), ""),
        ("status has to be text", with_id("status INT"), ""),
        ("status has to be text", with_id("status VARCHAR(5)"), ""),
        ("position has to take NULL", with_id("position BIGINT NOT NULL DEFAULT 0"), ""),
        ("id has to be", with_key.to_owned(), ""),
        (own.0, own.1.to_owned(), own.2),
        (
            "status",
            with_id(
                "status VARCHAR(10) DEFAULT 'PENDING', CONSTRAINT of_status CHECK (status IN ('PENDING', 'SENT'))",
            ),
            "",
        ),
        ("tenant", with_id("tenant INT NOT NULL"), ""),
    ];
    for (why, columns, options) in cases {
        let table =
            format!("CREATE TABLE outbox_events ({columns}, event_type TEXT, payload TEXT) {options}");
        database.execute(&table).await;
        let before = database.execute(&count).await;
        let refused = database.try_records().await.err().expect("a refusal").to_string();
        assert!(refused.contains(why), "{table}: {refused}");
        // MariaDB itself reports these problems, when a migration fails.
        let is_reported_by_server = *flavour == Flavour::MariaDb && ["status", "tenant"].contains(&why);
        assert!(is_reported_by_server || refused.contains("OUTBOX"), "the setting is named: {refused}");
        assert_eq!(database.execute(&count).await, before, "the table is unchanged");
        database.execute("DROP TABLE outbox_events").await;
    }
    // A table that just meets the requirements.
    let status = match flavour {
        Flavour::Postgres => "VARCHAR(10)",
        Flavour::MariaDb => "ENUM('PENDING', 'PROCESSING', 'DONE', 'FAILED')",
    };
    let columns =
        with_id(&format!("status {status} DEFAULT 'PENDING', event_type VARCHAR(32), payload VARCHAR(255)"));
    database.execute(&format!("CREATE TABLE outbox_events ({columns})")).await;
    let records = database.records().await;
    database.execute("INSERT INTO memberships VALUES ('ev', '7', 'ACCEPTED'); DELETE FROM memberships").await;
    assert_eq!(sequence_batch(&records).await.unwrap(), 1);
}

/// On SQLite the migration creates the table anew, so it refuses a table on which other objects depend.
fn dependent_objects_of_an_embedded_table_are_not_lost() {
    const TABLE: &str = "CREATE TABLE outbox_events (id INTEGER PRIMARY KEY, event_type TEXT, payload TEXT);
        INSERT INTO outbox_events VALUES (1, 'a.b', '{}');";
    let table_and = |more: &str| format!("{TABLE} {more}");
    let cases = [
        (
            "CREATE TABLE outbox_events (id TEXT PRIMARY KEY, event_type TEXT, payload TEXT);
          INSERT INTO outbox_events VALUES ('one', 'a.b', '{}')"
                .to_owned(),
            "whole numbers",
        ),
        (
            table_and(
                "CREATE TABLE sent (one INTEGER REFERENCES outbox_events (id) ON DELETE CASCADE);
          INSERT INTO sent VALUES (1)",
            ),
            "would be lost",
        ),
        (table_and("CREATE INDEX mine ON outbox_events (event_type)"), "would be lost"),
        (table_and("CREATE VIEW mine AS SELECT * FROM outbox_events"), "would be lost"),
        (table_and("CREATE TRIGGER mine AFTER INSERT ON outbox_events BEGIN SELECT 1; END"), "would be lost"),
    ];
    for (table, why) in cases {
        let folder = tempfile::tempdir().unwrap();
        let refused = file_with(folder.path(), &table).expect_err("a refusal").to_string();
        assert!(refused.contains(why) && refused.contains("OUTBOX"), "{table}: {refused}");
        let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
        let left = "SELECT (SELECT count(*) FROM outbox_events), (SELECT count(*) FROM sqlite_schema)";
        let left =
            file.query_row(left, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap();
        assert!(left.0 == 1 && left.1 > 1, "{table}: {left:?}");
        if table.contains("sent") {
            let sent = file.query_row("SELECT count(*) FROM sent", [], |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(sent, 1);
        }
    }
}

pub(crate) async fn migrations_can_be_applied_again(database: Database) {
    let Database::Server(..) = &database else {
        migrations_of_a_file_can_be_applied_again();
        return;
    };
    let records = database.records().await;
    database
        .execute("INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ('a.b', '{}', '7')")
        .await;
    sequence_all(&records).await;
    // Without the record of the migration, the tables look as if they had been created by hand.
    database.execute("DELETE FROM bongsu_migrations WHERE part = 'outbox'").await;
    let records = database.records().await;
    let mut tail = Tail::from_start(records.clone());
    let TailRead::Rows { rows, .. } = tail.read_next().await.unwrap() else { panic!("rows") };
    assert_eq!(rows.iter().map(|row| row.position).collect::<Vec<_>>(), [1]);
}

fn migrations_of_a_file_can_be_applied_again() {
    let folder = tempfile::tempdir().unwrap();
    let open =
        || File::open(DataFolder::take(folder.path()).unwrap(), &Migrations::new([MIGRATIONS])).unwrap();
    drop(open());
    let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
    file.execute_batch(
        "INSERT INTO outbox_events (event_type, payload, target_event_id, position) VALUES ('a.b', '{}', '7', 1);
         DELETE FROM migrations WHERE part = 'outbox'",
    )
    .unwrap();
    drop(open());
    let count = "SELECT count(*) FROM outbox_events WHERE position = 1";
    assert_eq!(file.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
}
