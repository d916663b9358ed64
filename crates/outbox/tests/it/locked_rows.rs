//! Rows that other transactions have locked or not committed, and a restored database, while the sequencer runs.

use std::time::Duration;

use bongsu_outbox::sequence::sequence_batch;
use bongsu_outbox::tail::{Tail, TailRead};
use bongsu_sql::{BoxFuture, Dialect, Error, Query, Records, Transaction};
use bongsu_testkit::tier;
use tokio::sync::watch;

use crate::database::Database;
use crate::gaps::{number, read_rows, write};
use crate::positions::insert;

static LOCK_ROW: Query =
    Query::new("locked", ["SELECT id FROM outbox_events WHERE id = :id", FOR_UPDATE, FOR_UPDATE]);
const FOR_UPDATE: &str = "SELECT id FROM outbox_events WHERE id = :id FOR UPDATE";

/// Runs the sequencer until no row is without a position, and returns how many rows got one.
pub(crate) async fn sequence_all(records: &Records) -> usize {
    let mut sequenced = 0;
    for _ in 0..10_000 {
        match sequence_batch(records).await.unwrap() {
            0 => return sequenced,
            batch => sequenced += batch,
        }
    }
    panic!("the sequencer does not finish: {sequenced} rows so far");
}

/// Writes rows of a target, each in a transaction of its own.
async fn add(records: &Records, target: &'static str, numbers: std::ops::Range<u64>) {
    fn write_one<'t>(
        (target, number): &'t (&'static str, u64),
        tx: &'t mut Transaction<'_>,
    ) -> BoxFuture<'t, Result<(), Error>> {
        Box::pin(async move { write(tx, *number, target).await })
    }
    for number in numbers {
        records.write((target, number), write_one).await.unwrap();
    }
}

/// A transaction that stays open until the test ends it.
struct OpenTransaction {
    /// Set to true when the transaction has run its statement.
    is_open: watch::Sender<bool>,
    /// True when the transaction may commit.
    may_end: watch::Receiver<bool>,
    target: &'static str,
    /// The row that the transaction locks. None writes a row of the target instead.
    locked_id: Option<i64>,
}

async fn run_open(open: &OpenTransaction, tx: &mut Transaction<'_>) -> Result<(), Error> {
    match open.locked_id {
        Some(id) => drop(tx.row(&LOCK_ROW, &[("id", id.into())]).await?),
        None => write(tx, 1_000, open.target).await?,
    }
    open.is_open.send_replace(true);
    let mut may_end = open.may_end.clone();
    let _ = may_end.wait_for(|may_end| *may_end).await;
    Ok(())
}

/// Begins a transaction that writes or locks a row. It commits when `true` is sent to the returned sender.
pub(crate) async fn begin(
    records: Records,
    target: &'static str,
    locked_id: Option<i64>,
) -> (watch::Sender<bool>, tokio::task::JoinHandle<Result<(), Error>>) {
    let ((is_open, mut opened), (end, may_end)) = (watch::channel(false), watch::channel(false));
    let open = OpenTransaction { is_open, may_end, target, locked_id };
    let running = tokio::spawn(async move { records.write(open, run_open).await });
    opened.wait_for(|is_open| *is_open).await.unwrap();
    (end, running)
}

/// Why tests of locked rows do not apply to the embedded file.
pub(crate) const ONE_WRITER: &str = "SQLite has one writer at a time, so no other transaction can lock a row";

pub(crate) async fn an_open_transaction_delays_no_other_row(database: Database) {
    let records = database.records().await;
    if records.dialect() == Dialect::Sqlite {
        return tier::not_applicable(ONE_WRITER);
    }
    let mut tail = Tail::from_start(database.records().await);
    let (end, running) = begin(database.records().await, "a", None).await;
    add(&records, "a", 1..6).await;
    assert_eq!(sequence_all(&records).await, 5);
    let seen = read_rows(&mut tail, 5).await;
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [1, 2, 3, 4, 5]);
    end.send_replace(true);
    running.await.unwrap().unwrap();
    assert_eq!(sequence_all(&records).await, 1);
    let late = read_rows(&mut tail, 1).await.remove(0);
    assert_eq!((number(&late), late.position), (1_000, 6));
    assert!(late.id < seen[0].id, "a reader by id would have skipped the row");
}

pub(crate) async fn a_locked_row_delays_only_its_target(database: Database) {
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
    let seen = read_rows(&mut tail, 3).await;
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [10, 11, 12]);
    end.send_replace(true);
    running.await.unwrap().unwrap();
    assert_eq!(sequence_all(&records).await, 3);
    let seen = read_rows(&mut tail, 3).await;
    assert_eq!(seen.iter().map(number).collect::<Vec<_>>(), [1, 2, 3], "in the order of the target");
}

pub(crate) async fn a_delayed_target_does_not_slow_other_targets(database: Database) {
    let records = database.records().await;
    if records.dialect() == Dialect::Sqlite {
        return tier::not_applicable(ONE_WRITER);
    }
    // The rows of the delayed target nearly fill a batch of the sequencer, and come before all other rows.
    add(&records, "held", 1..2).await;
    let (end, running) = begin(database.records().await, "held", Some(1)).await;
    insert(&database, "held", 498).await;
    insert(&database, "free", 400).await;
    assert_eq!(sequence_batch(&records).await.unwrap(), 400);
    end.send_replace(true);
    running.await.unwrap().unwrap();
}

const NOW: u64 = 1_800_000_000_000;
static RESTORES: Query = Query::new("again", [SELECT_RESTORES; 3]);
const SELECT_RESTORES: &str = "SELECT position, id FROM bongsu_outbox_again";

/// The recorded restores: the last position whose row the restore did not change, and the largest id that may
/// be assigned again.
async fn read_restores((): &(), tx: &mut Transaction<'_>) -> Result<Vec<(i64, i64)>, Error> {
    let rows = tx.rows(&RESTORES, &[]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?))).collect()
}

pub(crate) async fn a_restored_database_is_detected(database: Database) {
    let records = database.records().await;
    let mut behind = Tail::from_start(database.records().await);
    assert!(matches!(behind.read_next().await.unwrap(), TailRead::Rows { rows, .. } if rows.is_empty()));
    add(&records, "a", 1..5).await;
    sequence_all(&records).await;
    let mut tail = Tail::from_start(database.records().await);
    read_rows(&mut tail, 4).await;
    // The database is restored from a copy with two of the four rows. The first row got its position 10 minutes
    // earlier.
    let old = NOW - 10 * 60 * 1_000;
    database.execute(&format!("INSERT INTO bongsu_outbox_times (position, at) VALUES (1, {old})")).await;
    database
        .execute("DELETE FROM outbox_events WHERE position > 2; UPDATE bongsu_outbox_head SET position = 2")
        .await;
    assert!(matches!(tail.read_next().await.unwrap(), TailRead::Restored { is_recorded: false }));
    assert!(
        matches!(tail.read_next().await.unwrap(), TailRead::Restored { is_recorded: false }),
        "until the restore is recorded"
    );
    tail.restart(NOW, false).await.unwrap();
    assert_eq!(
        records.read((), read_restores).await.unwrap(),
        [(1, 4)],
        "ids up to 4 are ambiguous after position 1"
    );
    add(&records, "a", 5..6).await;
    sequence_all(&records).await;
    assert_eq!(read_rows(&mut tail, 1).await.iter().map(number).collect::<Vec<_>>(), [5]);
    // A second restore, after which positions are given again before a tail reads.
    database
        .execute("DELETE FROM outbox_events WHERE position > 1; UPDATE bongsu_outbox_head SET position = 1")
        .await;
    add(&records, "a", 6..12).await;
    sequence_all(&records).await;
    assert!(matches!(tail.read_next().await.unwrap(), TailRead::Restored { is_recorded: false }));
    tail.restart(NOW, false).await.unwrap();
    // A tail that had not read so far finds the record, and adds none.
    let restores = records.read((), read_restores).await.unwrap();
    assert!(matches!(behind.read_next().await.unwrap(), TailRead::Restored { is_recorded: true }));
    behind.restart(NOW + 1_000, true).await.unwrap();
    assert_eq!(records.read((), read_restores).await.unwrap(), restores);
    assert!(matches!(behind.read_next().await.unwrap(), TailRead::Rows { .. }));
    tokio::time::timeout(Duration::from_secs(60), tail.read_next()).await.unwrap().unwrap();
}
