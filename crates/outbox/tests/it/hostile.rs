//! Invalid rows and changes by other programs, by mistake or on purpose: they stop no other row and give access to no
//! stream.

use std::path::Path;

use bongsu_kernel::Id;
use bongsu_outbox::sequence::sequence_batch;
use bongsu_outbox::store::MIGRATIONS;
use bongsu_outbox::tail::{Tail, TailRead};
use bongsu_outbox::{Fault, MembershipError, OutboxRow};
use bongsu_sql::{DataFolder, Database as File, Dialect, Error, Migrations, rusqlite};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;

use crate::database::Database;
use crate::gaps::read_rows;
use crate::locked_rows::{begin, sequence_all};
use crate::positions::{insert, source};
use crate::worker::dead_letters;

async fn sequence(database: &Database) {
    let records = database.records().await;
    sequence_all(&records).await;
}

pub(crate) async fn positions_written_by_other_programs_are_replaced(database: Database) {
    let records = database.records().await;
    // Positions of an imported table without its counter, and invalid ones.
    for (id, position) in [(1, "2"), (2, "1"), (3, "-7"), (4, "0"), (5, "9223372036854775807")] {
        let row = format!("({id}, 'test.row.v1', '{{\"n\":{id}}}', 'a', {position})");
        let columns = "outbox_events (id, event_type, payload, target_event_id, position)";
        database.execute(&format!("INSERT INTO {columns} VALUES {row}")).await;
    }
    sequence(&database).await;
    let mut tail = Tail::from_start(records);
    let positions = |rows: &[OutboxRow]| rows.iter().map(|row| (row.id, row.position)).collect::<Vec<_>>();
    assert_eq!(positions(&read_rows(&mut tail, 5).await), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
    // One more foreign position, right above the counter.
    database
        .execute(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id, position) \
             VALUES (7, 'test.row.v1', '{\"n\":7}', 'a', 6), (8, 'test.row.v1', '{\"n\":8}', 'a', NULL)",
        )
        .await;
    sequence(&database).await;
    assert_eq!(positions(&read_rows(&mut tail, 2).await), [(7, 6), (8, 7)]);
}

pub(crate) async fn invalid_utf8_does_not_stop_other_rows(database: Database) {
    if !matches!(database, Database::Embedded { .. }) {
        return tier::not_applicable("servers refuse text that is not UTF-8 themselves");
    }
    for (id, kind, payload, target) in [
        (1, "'test.row.v1'", "CAST(x'ff' AS TEXT)", "'a'"),
        (2, "CAST(x'ff' AS TEXT)", "'{}'", "'a'"),
        (3, "'test.row.v1'", "'{}'", "CAST(x'ff' AS TEXT)"),
        (4, "'test.row.v1'", "'{\"n\":4}'", "'a'"),
    ] {
        let columns = "outbox_events (id, event_type, payload, target_event_id)";
        database.execute(&format!("INSERT INTO {columns} VALUES ({id}, {kind}, {payload}, {target})")).await;
    }
    sequence(&database).await;
    let records = database.records().await;
    let rows = read_rows(&mut Tail::from_start(records), 4).await;
    let faults: Vec<bool> = rows.iter().map(|row| row.fault().is_some()).collect();
    assert_eq!(faults, [true, true, true, false]);
}

pub(crate) async fn requests_that_take_every_connection_do_not_delay_the_sequencer(database: Database) {
    let records = database.records().await;
    if records.dialect() == Dialect::Sqlite {
        return tier::not_applicable("the embedded file has no pool of connections");
    }
    insert(&database, "a", 3).await;
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(begin(records.clone(), "b", None).await);
    }
    assert_eq!(sequence_batch(&records.reserved_pool()).await.unwrap(), 3);
    assert_eq!(read_rows(&mut Tail::from_start(records.reserved_pool()), 3).await.len(), 3);
    for (end, running) in open {
        end.send_replace(true);
        running.await.unwrap().unwrap();
    }
}

pub(crate) async fn membership_requires_the_exact_ids(database: Database) {
    let records = database.records().await;
    let (_, outbox) = source(&records).await;
    database
        .execute("INSERT INTO memberships VALUES ('ev', 'Ada', 'ACCEPTED'), ('ev', '7 ', 'ACCEPTED')")
        .await;
    let is_member = async |event: &str, person: &str| {
        outbox.check_membership(&Id::new(event).unwrap(), &Id::new(person).unwrap()).await.is_ok()
    };
    assert!(is_member("ev", "Ada").await);
    for (event, person) in [("ev", "ada"), ("Ev", "Ada"), ("ev", "7"), ("ev", "Ada.")] {
        assert!(!is_member(event, person).await, "{person} in {event}");
    }
}

pub(crate) async fn membership_columns_that_merge_different_ids_are_refused(database: Database) {
    let table = |kind: &str| {
        format!(
            "CREATE TABLE memberships (event_id {kind}, user_id {kind}, status VARCHAR(16), PRIMARY KEY (event_id, user_id))"
        )
    };
    let kinds = match database.name() {
        "embedded" => vec!["INTEGER", "TEXT COLLATE NOCASE"],
        "postgres" => vec!["BIGINT", "TEXT COLLATE alike"],
        _ => vec!["BIGINT", "VARCHAR(64) COLLATE utf8mb4_general_ci"],
    };
    if database.name() == "embedded" {
        for kind in kinds {
            let folder = tempfile::tempdir().unwrap();
            let refused = file_with(folder.path(), &table(kind)).expect_err("a refusal").to_string();
            assert!(refused.contains("memberships") && refused.contains("OUTBOX"), "{refused}");
        }
        return;
    }
    if database.name() == "postgres" {
        let alike = "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)";
        database.execute(&format!("CREATE COLLATION alike {alike}")).await;
    }
    for kind in kinds {
        database.execute(&table(kind)).await;
        let refused = database.try_records().await.err().expect("a refusal").to_string();
        assert!(refused.contains("memberships") && refused.contains("OUTBOX"), "{refused}");
        database.execute("DROP TABLE memberships").await;
    }
    database.records().await;
}

/// Opens an embedded database in which a table exists before the migrations.
pub(crate) fn file_with(folder: &Path, table: &str) -> Result<rusqlite::Connection, Error> {
    drop(File::open(DataFolder::take(folder).unwrap(), &Migrations::new([])).unwrap());
    let file = rusqlite::Connection::open(folder.join("bongsu.db")).unwrap();
    file.execute_batch(table).unwrap();
    File::open(DataFolder::take(folder).unwrap(), &Migrations::new([MIGRATIONS]))?;
    Ok(file)
}

pub(crate) async fn a_membership_with_a_null_status_has_ended(database: Database) {
    const END_MEMBERSHIP: &str = "INSERT INTO memberships VALUES ('ev', '7', 'ACCEPTED'); \
        UPDATE memberships SET status = NULL WHERE user_id = '7'";
    const COUNT_REMOVALS: &str = "SELECT COUNT(*) FROM outbox_events WHERE event_type = 'system.removed'";
    // A table that a program created may allow NULL.
    let Database::Server(flavour, _) = &database else {
        let folder = tempfile::tempdir().unwrap();
        let table =
            "CREATE TABLE memberships (event_id TEXT, user_id TEXT, status TEXT, UNIQUE (event_id, user_id))";
        let file = file_with(folder.path(), table).unwrap();
        file.execute_batch(END_MEMBERSHIP).unwrap();
        assert_eq!(file.query_row(COUNT_REMOVALS, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
        return;
    };
    let allow = match flavour {
        Flavour::Postgres => "ALTER COLUMN status DROP NOT NULL",
        Flavour::MariaDb => "MODIFY status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin",
    };
    database.records().await;
    database.execute(&format!("ALTER TABLE memberships {allow}; {END_MEMBERSHIP}")).await;
    assert_eq!(database.execute(COUNT_REMOVALS).await.trim(), "1");
}

pub(crate) async fn a_trailing_blank_in_an_id_ends_the_membership(database: Database) {
    let records = database.records().await;
    let (_, outbox) = source(&records).await;
    let event = Id::new("ev").unwrap();
    for (user, change) in [("7", "user_id = '7 '"), ("8", "event_id = 'ev '")] {
        database.execute(&format!("INSERT INTO memberships VALUES ('ev', '{user}', 'ACCEPTED')")).await;
        outbox.check_membership(&event, &Id::new(user).unwrap()).await.unwrap();
        database.execute(&format!("UPDATE memberships SET {change} WHERE user_id = '{user}'")).await;
        let refused = outbox.check_membership(&event, &Id::new(user).unwrap()).await;
        assert!(
            matches!(refused, Err(MembershipError::NotAMember | MembershipError::UnknownEvent)),
            "{refused:?}"
        );
    }
    sequence_all(&records).await;
    let TailRead::Rows { rows, .. } = Tail::from_start(records).read_next().await.unwrap() else {
        panic!("rows")
    };
    let is_removal = |row: &OutboxRow, user: &str| {
        row.target == "ev"
            && row.payload.as_ref().is_some_and(|payload| payload.contains(&format!("\"{user}\"")))
    };
    assert!(rows.len() == 2 && is_removal(&rows[0], "7") && is_removal(&rows[1], "8"), "{rows:?}");
}

pub(crate) async fn the_search_path_does_not_hide_a_removal(database: Database) {
    let Database::Server(Flavour::Postgres, url) = &database else {
        return tier::not_applicable("only PostgreSQL has a search path for tables");
    };
    database.records().await;
    let name = Server::database_name(url);
    database.execute("INSERT INTO memberships VALUES ('ev', '7', 'ACCEPTED'), ('ev', '8', 'ACCEPTED')").await;
    database
        .execute(
            "CREATE SCHEMA shop; CREATE TABLE shop.outbox_events (LIKE public.outbox_events INCLUDING ALL); \
             SET search_path = shop, public; DELETE FROM memberships WHERE user_id = '7'",
        )
        .await;
    let role = format!("clerk_{name}");
    database
        .execute(&format!(
            "CREATE ROLE {role}; GRANT SELECT, DELETE ON memberships TO {role}; SET ROLE {role}; \
             DELETE FROM memberships WHERE user_id = '8'; RESET ROLE; DROP OWNED BY {role}; DROP ROLE {role}"
        ))
        .await;
    let count = "SELECT COUNT(*) FROM public.outbox_events WHERE event_type = 'system.removed'";
    assert_eq!(database.execute(count).await.trim(), "2");
}

pub(crate) async fn temporary_tables_do_not_hide_a_removal(database: Database) {
    let records = database.records().await;
    let columns =
        "(event_type VARCHAR(99), payload VARCHAR(99), target_event_id VARCHAR(99), status VARCHAR(99))";
    database
        .execute(&format!(
            "INSERT INTO memberships VALUES ('ev', '7', 'ACCEPTED'); \
             CREATE TEMPORARY TABLE outbox_events {columns}; DELETE FROM memberships WHERE user_id = '7'"
        ))
        .await;
    assert_eq!(sequence_batch(&records).await.unwrap(), 1);
}

pub(crate) async fn long_event_types_are_read_up_to_a_limit(database: Database) {
    const LENGTH: usize = 1_000_000;
    let records = database.records().await;
    let long = match database.name() {
        "embedded" => format!("hex(zeroblob({}))", LENGTH / 2),
        "postgres" => format!("repeat('0', {LENGTH})"),
        _ => {
            // A table that a program created may have a wider column.
            database.execute("ALTER TABLE outbox_events MODIFY event_type LONGTEXT").await;
            format!("repeat('0', {LENGTH})")
        }
    };
    database
        .execute(&format!(
            "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ({long}, '{{}}', 'ev')"
        ))
        .await;
    assert_eq!(sequence_batch(&records).await.unwrap(), 1);
    let (_, outbox) = source(&records).await;
    let letters = dead_letters(&outbox).await;
    let rows = read_rows(&mut Tail::from_start(records), 1).await;
    for event_type in [&letters[0].kind, &rows[0].event_type] {
        assert!(event_type.len() <= 200, "{}", event_type.len());
    }
    assert_eq!(rows[0].fault(), Some(Fault::Type));
}

pub(crate) async fn truncating_the_table_is_reported_to_every_tail(database: Database) {
    if database.name() != "postgres" {
        return tier::not_applicable("only PostgreSQL has triggers for TRUNCATE");
    }
    let records = database.records().await;
    insert(&database, "a", 5).await;
    sequence(&database).await;
    let mut tail = Tail::from_start(records);
    read_rows(&mut tail, 5).await;
    database.execute("TRUNCATE outbox_events RESTART IDENTITY").await;
    insert(&database, "a", 7).await;
    sequence(&database).await;
    let read = tail.read_next().await.unwrap();
    assert!(matches!(read, TailRead::Restored { is_recorded: true }), "{read:?}");
}
