//! What other programs may do to the tables, by mistake or on purpose: nobody else's rows stop for it, and nobody gets in.

use std::path::Path;

use bongsu_kernel::Id;
use bongsu_outbox::sequence::sequence_some;
use bongsu_outbox::store::MIGRATIONS;
use bongsu_outbox::tail::{Read, Tail};
use bongsu_outbox::{Fault, RightError, Row};
use bongsu_sql::{DataFolder, Database as File, Dialect, Error, Migrations, rusqlite};
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::tier;

use crate::database::Database;
use crate::gaps::next;
use crate::held::{begin, sequence_all};
use crate::places::{insert, source};
use crate::work::dead_letters;

async fn sequence(database: &Database) {
    let records = database.records().await;
    sequence_all(&records).await;
}

pub(crate) async fn positions_that_others_wrote_are_given_anew(database: Database) {
    let records = database.records().await;
    // As a table is imported without the counter, and as nobody should write.
    for (id, position) in [(1, "2"), (2, "1"), (3, "-7"), (4, "0"), (5, "9223372036854775807")] {
        let row = format!("({id}, 'test.row.v1', '{{\"n\":{id}}}', 'a', {position})");
        let columns = "outbox_events (id, event_type, payload, target_event_id, position)";
        database.execute(&format!("INSERT INTO {columns} VALUES {row}")).await;
    }
    sequence(&database).await;
    let mut tail = Tail::from_start(records);
    let places = |rows: &[Row]| rows.iter().map(|row| (row.id, row.position)).collect::<Vec<_>>();
    assert_eq!(places(&next(&mut tail, 5).await), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 5)]);
    // And one more, right above the counter.
    database
        .execute(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id, position) \
             VALUES (7, 'test.row.v1', '{\"n\":7}', 'a', 6), (8, 'test.row.v1', '{\"n\":8}', 'a', NULL)",
        )
        .await;
    sequence(&database).await;
    assert_eq!(places(&next(&mut tail, 2).await), [(7, 6), (8, 7)]);
}

pub(crate) async fn text_that_is_no_utf8_stops_nobody(database: Database) {
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
    let rows = next(&mut Tail::from_start(records), 4).await;
    let faults: Vec<bool> = rows.iter().map(|row| row.fault().is_some()).collect();
    assert_eq!(faults, [true, true, true, false]);
}

pub(crate) async fn requests_that_take_every_connection_hold_up_no_positions(database: Database) {
    let records = database.records().await;
    if records.dialect() == Dialect::Sqlite {
        return tier::not_applicable("a file has no connections that requests could take");
    }
    insert(&database, "a", 3).await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(begin(records.clone(), "b", None).await);
    }
    assert_eq!(sequence_some(&records.own_lane()).await.unwrap(), 3);
    assert_eq!(next(&mut Tail::from_start(records.own_lane()), 3).await.len(), 3);
    for (end, running) in held {
        end.send_replace(true);
        running.await.unwrap().unwrap();
    }
}

pub(crate) async fn rights_are_nobodys_who_is_only_named_alike(database: Database) {
    let records = database.records().await;
    let (_, outbox) = source(&records).await;
    database
        .execute("INSERT INTO memberships VALUES ('ev', 'Ada', 'ACCEPTED'), ('ev', '7 ', 'ACCEPTED')")
        .await;
    let may = async |event: &str, person: &str| {
        outbox.may_follow(&Id::new(event).unwrap(), &Id::new(person).unwrap()).await.is_ok()
    };
    assert!(may("ev", "Ada").await);
    for (event, person) in [("ev", "ada"), ("Ev", "Ada"), ("ev", "7"), ("ev", "Ada.")] {
        assert!(!may(event, person).await, "{person} in {event}");
    }
}

pub(crate) async fn memberships_that_cannot_tell_people_apart_are_refused(database: Database) {
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

/// A file that has a table already.
pub(crate) fn file_with(folder: &Path, table: &str) -> Result<rusqlite::Connection, Error> {
    drop(File::open(DataFolder::take(folder).unwrap(), &Migrations::new([])).unwrap());
    let file = rusqlite::Connection::open(folder.join("bongsu.db")).unwrap();
    file.execute_batch(table).unwrap();
    File::open(DataFolder::take(folder).unwrap(), &Migrations::new([MIGRATIONS]))?;
    Ok(file)
}

pub(crate) async fn a_membership_that_is_nothing_any_more_has_ended(database: Database) {
    const ENDS: &str = "INSERT INTO memberships VALUES ('ev', '7', 'ACCEPTED'); \
        UPDATE memberships SET status = NULL WHERE user_id = '7'";
    const ENDED: &str = "SELECT COUNT(*) FROM outbox_events WHERE event_type = 'system.removed'";
    // A program's own table may allow that.
    let Database::Server(flavour, _) = &database else {
        let folder = tempfile::tempdir().unwrap();
        let table =
            "CREATE TABLE memberships (event_id TEXT, user_id TEXT, status TEXT, UNIQUE (event_id, user_id))";
        let file = file_with(folder.path(), table).unwrap();
        file.execute_batch(ENDS).unwrap();
        assert_eq!(file.query_row(ENDED, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
        return;
    };
    let allow = match flavour {
        Flavour::Postgres => "ALTER COLUMN status DROP NOT NULL",
        Flavour::MariaDb => "MODIFY status VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin",
    };
    database.records().await;
    database.execute(&format!("ALTER TABLE memberships {allow}; {ENDS}")).await;
    assert_eq!(database.execute(ENDED).await.trim(), "1");
}

pub(crate) async fn a_right_that_is_somebody_elses_by_a_blank_has_ended(database: Database) {
    let records = database.records().await;
    let (_, outbox) = source(&records).await;
    let event = Id::new("ev").unwrap();
    for (user, change) in [("7", "user_id = '7 '"), ("8", "event_id = 'ev '")] {
        database.execute(&format!("INSERT INTO memberships VALUES ('ev', '{user}', 'ACCEPTED')")).await;
        outbox.may_follow(&event, &Id::new(user).unwrap()).await.unwrap();
        database.execute(&format!("UPDATE memberships SET {change} WHERE user_id = '{user}'")).await;
        let refused = outbox.may_follow(&event, &Id::new(user).unwrap()).await;
        assert!(matches!(refused, Err(RightError::Stranger | RightError::NoEvent)), "{refused:?}");
    }
    sequence_all(&records).await;
    let Read::Rows { rows, .. } = Tail::from_start(records).read_on().await.unwrap() else { panic!("rows") };
    let ended = |row: &Row, user: &str| {
        row.target == "ev"
            && row.payload.as_ref().is_some_and(|payload| payload.contains(&format!("\"{user}\"")))
    };
    assert!(rows.len() == 2 && ended(&rows[0], "7") && ended(&rows[1], "8"), "{rows:?}");
}

pub(crate) async fn a_right_ends_here_wherever_its_program_looks_for_tables(database: Database) {
    let Database::Server(Flavour::Postgres, url) = &database else {
        return tier::not_applicable("only PostgreSQL has a search path for tables");
    };
    database.records().await;
    let name = Server::name_in(url);
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
    let ended = "SELECT COUNT(*) FROM public.outbox_events WHERE event_type = 'system.removed'";
    assert_eq!(database.execute(ended).await.trim(), "2");
}

pub(crate) async fn a_sessions_own_tables_hide_no_right_that_ends(database: Database) {
    let records = database.records().await;
    let columns =
        "(event_type VARCHAR(99), payload VARCHAR(99), target_event_id VARCHAR(99), status VARCHAR(99))";
    database
        .execute(&format!(
            "INSERT INTO memberships VALUES ('ev', '7', 'ACCEPTED'); \
             CREATE TEMPORARY TABLE outbox_events {columns}; DELETE FROM memberships WHERE user_id = '7'"
        ))
        .await;
    assert_eq!(sequence_some(&records).await.unwrap(), 1);
}

pub(crate) async fn names_of_any_length_are_read_in_part(database: Database) {
    const LENGTH: usize = 1_000_000;
    let records = database.records().await;
    let long = match database.name() {
        "embedded" => format!("hex(zeroblob({}))", LENGTH / 2),
        "postgres" => format!("repeat('0', {LENGTH})"),
        _ => {
            // A program's own table may have room for it.
            database.execute("ALTER TABLE outbox_events MODIFY event_type LONGTEXT").await;
            format!("repeat('0', {LENGTH})")
        }
    };
    database
        .execute(&format!(
            "INSERT INTO outbox_events (event_type, payload, target_event_id) VALUES ({long}, '{{}}', 'ev')"
        ))
        .await;
    assert_eq!(sequence_some(&records).await.unwrap(), 1);
    let (_, outbox) = source(&records).await;
    let letters = dead_letters(&outbox).await;
    let rows = next(&mut Tail::from_start(records), 1).await;
    for event_type in [&letters[0].kind, &rows[0].event_type] {
        assert!(event_type.len() <= 200, "{}", event_type.len());
    }
    assert_eq!(rows[0].fault(), Some(Fault::Type));
}

pub(crate) async fn a_table_that_was_emptied_is_told_to_everybody(database: Database) {
    if database.name() != "postgres" {
        return tier::not_applicable("only PostgreSQL has triggers for TRUNCATE");
    }
    let records = database.records().await;
    insert(&database, "a", 5).await;
    sequence(&database).await;
    let mut tail = Tail::from_start(records);
    next(&mut tail, 5).await;
    database.execute("TRUNCATE outbox_events RESTART IDENTITY").await;
    insert(&database, "a", 7).await;
    sequence(&database).await;
    let read = tail.read_on().await.unwrap();
    assert!(matches!(read, Read::Restored { is_noted: true }), "{read:?}");
}
