//! What others do to rows and to the database while positions are given.

use std::time::Duration;

use bongsu_outbox::sequence::sequence_some;
use bongsu_outbox::tail::{Read, Tail};
use bongsu_sql::{Boxed, Dialect, Error, Query, Records, Transaction};
use bongsu_testkit::tier;
use tokio::sync::watch;

use crate::database::Database;
use crate::gaps::{next, number, write};
use crate::places::insert;

static LOCKED: Query =
    Query::new("locked", ["SELECT id FROM outbox_events WHERE id = :id", FOR_UPDATE, FOR_UPDATE]);
const FOR_UPDATE: &str = "SELECT id FROM outbox_events WHERE id = :id FOR UPDATE";

/// Gives all rows their positions, and gives how many there were.
pub(crate) async fn sequence_all(records: &Records) -> usize {
    let mut given = 0;
    for _ in 0..10_000 {
        match sequence_some(records).await.unwrap() {
            0 => return given,
            some => given += some,
        }
    }
    panic!("{given} rows have positions, and there are still more");
}

/// Rows of a target, each committed by itself.
async fn add(records: &Records, target: &'static str, numbers: std::ops::Range<u64>) {
    fn one<'t>(
        (target, number): &'t (&'static str, u64),
        tx: &'t mut Transaction<'_>,
    ) -> Boxed<'t, Result<(), Error>> {
        Box::pin(async move { write(tx, *number, target).await })
    }
    for number in numbers {
        records.write((target, number), one).await.unwrap();
    }
}

/// A transaction that is under way until it is told to end.
struct Open {
    /// What it says when it has done its part, and hears when it may end.
    here: watch::Sender<bool>,
    may_end: watch::Receiver<bool>,
    target: &'static str,
    locks: Option<i64>,
}

async fn stay_open(open: &Open, tx: &mut Transaction<'_>) -> Result<(), Error> {
    match open.locks {
        Some(id) => drop(tx.row(&LOCKED, &[("id", id.into())]).await?),
        None => write(tx, 1_000, open.target).await?,
    }
    open.here.send_replace(true);
    let mut may_end = open.may_end.clone();
    let _ = may_end.wait_for(|may| *may).await;
    Ok(())
}

/// Begins such a transaction; it ends when the sender says so.
pub(crate) async fn begin(
    records: Records,
    target: &'static str,
    locks: Option<i64>,
) -> (watch::Sender<bool>, tokio::task::JoinHandle<Result<(), Error>>) {
    let ((here, mut is_here), (end, may_end)) = (watch::channel(false), watch::channel(false));
    let open = Open { here, may_end, target, locks };
    let running = tokio::spawn(async move { records.write(open, stay_open).await });
    is_here.wait_for(|here| *here).await.unwrap();
    (end, running)
}

/// Why a test of rows that others hold means nothing on the embedded file.
pub(crate) const ONE_WRITER: &str = "SQLite has one writer at a time, so nobody else can hold a row";

pub(crate) async fn an_open_transaction_holds_up_nobody(database: Database) {
    let records = database.records().await;
    if records.dialect() == Dialect::Sqlite {
        return tier::not_applicable(ONE_WRITER);
    }
    let mut tail = Tail::from_start(database.records().await);
    let (end, running) = begin(database.records().await, "a", None).await;
    add(&records, "a", 1..6).await;
    assert_eq!(sequence_all(&records).await, 5);
    let seen = next(&mut tail, 5).await;
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    end.send_replace(true);
    running.await.unwrap().unwrap();
    assert_eq!(sequence_all(&records).await, 1);
    let late = next(&mut tail, 1).await.remove(0);
    assert_eq!((number(&late), late.position), (1_000, 6));
    assert!(late.id < seen[0].id, "whoever reads by id has lost it");
}

pub(crate) async fn a_row_that_somebody_holds_holds_up_its_own_target_only(database: Database) {
    let records = database.records().await;
    if records.dialect() == Dialect::Sqlite {
        return tier::not_applicable(ONE_WRITER);
    }
    add(&records, "held", 1..2).await;
    let mut tail = Tail::from_start(database.records().await);
    let (end, running) = begin(database.records().await, "held", Some(1)).await;
    add(&records, "held", 2..4).await;
    add(&records, "free", 10..13).await;
    assert_eq!(sequence_all(&records).await, 3);
    let seen = next(&mut tail, 3).await;
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [10, 11, 12]);
    end.send_replace(true);
    running.await.unwrap().unwrap();
    assert_eq!(sequence_all(&records).await, 3);
    let seen = next(&mut tail, 3).await;
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [1, 2, 3], "in their order");
}

pub(crate) async fn a_target_that_is_held_up_slows_down_nobody(database: Database) {
    let records = database.records().await;
    if records.dialect() == Dialect::Sqlite {
        return tier::not_applicable(ONE_WRITER);
    }
    // Nearly as many as are looked for at once come before all others.
    add(&records, "held", 1..2).await;
    let (end, running) = begin(database.records().await, "held", Some(1)).await;
    insert(&database, "held", 498).await;
    insert(&database, "free", 400).await;
    assert_eq!(sequence_some(&records).await.unwrap(), 400);
    end.send_replace(true);
    running.await.unwrap().unwrap();
}

const NOW: u64 = 1_800_000_000_000;
static AGAIN: Query = Query::new("again", [GIVEN_AGAIN; 3]);
const GIVEN_AGAIN: &str = "SELECT position, id FROM bongsu_outbox_again";

async fn again((): &(), tx: &mut Transaction<'_>) -> Result<Vec<(i64, i64)>, Error> {
    let rows = tx.rows(&AGAIN, &[]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?))).collect()
}

pub(crate) async fn a_database_that_was_restored_is_noticed(database: Database) {
    let records = database.records().await;
    let mut behind = Tail::from_start(database.records().await);
    assert!(matches!(behind.read_on().await.unwrap(), Read::Rows { rows, .. } if rows.is_empty()));
    add(&records, "a", 1..5).await;
    sequence_all(&records).await;
    let mut tail = Tail::from_start(database.records().await);
    next(&mut tail, 4).await;
    // A copy of two rows ago. The first had its position long before.
    let old = NOW - 10 * 60 * 1_000;
    database.execute(&format!("INSERT INTO bongsu_outbox_times (position, at) VALUES (1, {old})")).await;
    database
        .execute("DELETE FROM outbox_events WHERE position > 2; UPDATE bongsu_outbox_head SET position = 2")
        .await;
    assert!(matches!(tail.read_on().await.unwrap(), Read::Restored { is_noted: false }));
    assert!(
        matches!(tail.read_on().await.unwrap(), Read::Restored { is_noted: false }),
        "until that is noted"
    );
    tail.begin_anew(NOW, false).await.unwrap();
    assert_eq!(records.read((), again).await.unwrap(), [(1, 4)], "ids up to 4 mean nothing after position 1");
    add(&records, "a", 5..6).await;
    sequence_all(&records).await;
    assert_eq!(next(&mut tail, 1).await.iter().map(number).collect::<Vec<_>>(), [5]);
    // And one whose positions were given again before anybody looked.
    database
        .execute("DELETE FROM outbox_events WHERE position > 1; UPDATE bongsu_outbox_head SET position = 1")
        .await;
    add(&records, "a", 6..12).await;
    sequence_all(&records).await;
    assert!(matches!(tail.read_on().await.unwrap(), Read::Restored { is_noted: false }));
    tail.begin_anew(NOW, false).await.unwrap();
    // Somebody who had not come so far finds the note, and has nothing to add to it.
    let notes = records.read((), again).await.unwrap();
    assert!(matches!(behind.read_on().await.unwrap(), Read::Restored { is_noted: true }));
    behind.begin_anew(NOW + 1_000, true).await.unwrap();
    assert_eq!(records.read((), again).await.unwrap(), notes);
    assert!(matches!(behind.read_on().await.unwrap(), Read::Rows { .. }));
    tokio::time::timeout(Duration::from_secs(60), tail.read_on()).await.unwrap().unwrap();
}
