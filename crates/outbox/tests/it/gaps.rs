//! The promise that everything else rests on: ids say nothing about order, and no row is skipped all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_kernel::json::Object;
use bongsu_outbox::sequence::sequence_some;
use bongsu_outbox::tail::{Read, Tail};
use bongsu_outbox::{Event, Row, record};
use bongsu_sql::{Dialect, Error, Records, Transaction};
use bongsu_testkit::{Rng, proof, tier, wait};
use serde_json::json;

use crate::database::Database;

const SOON: Duration = Duration::from_secs(60);

/// A program's transaction: some rows, of some targets, with time between and after them; a third of them is undone.
#[derive(Clone, Debug)]
struct Change {
    /// Their numbers and targets.
    rows: Vec<(u64, u64)>,
    pauses: Vec<u64>,
    is_kept: bool,
}

pub(crate) async fn write(tx: &mut Transaction<'_>, number: u64, target: &str) -> Result<(), Error> {
    let payload = Object::stored(&format!("{{\"n\":{number}}}")).unwrap();
    let target = Id::new(target).unwrap();
    let event = Event { event_type: "test.row.v1", payload: &payload, target: &target, traceparent: None };
    record(tx, event).await
}

async fn run(change: &Change, tx: &mut Transaction<'_>) -> Result<(), Error> {
    for ((number, target), pause) in change.rows.iter().zip(&change.pauses) {
        write(tx, *number, &target.to_string()).await?;
        // The embedded file has one writer at a time, who waits for nothing.
        if tx.dialect() != Dialect::Sqlite {
            // How long a program's transaction takes.
            tokio::time::sleep(Duration::from_millis(*pause)).await;
        }
    }
    if change.is_kept { Ok(()) } else { Err(Error::Undone) }
}

/// When a transaction began to write and when it was known to be kept, by a clock that all share.
#[derive(Clone, Copy)]
struct Span {
    began: u64,
    kept: u64,
}

#[derive(Default)]
struct Kept {
    clock: AtomicU64,
    rows: Mutex<BTreeMap<u64, Span>>,
    undone: AtomicU64,
    committed: AtomicU64,
}

/// One that writes transaction after transaction.
async fn write_many(records: Records, mut rng: Rng, first: u64, transactions: usize, kept: Arc<Kept>) {
    let mut next = first;
    for _ in 0..transactions {
        let count = rng.range(1..4);
        let rows = (next..next + count).map(|number| (number, rng.below(5))).collect();
        next += count;
        // Mostly short, some long: those are overtaken by many.
        let pauses =
            (0..count).map(|_| if rng.chance(1, 8) { rng.below(80) } else { rng.below(4) }).collect();
        let change = Change { rows, pauses, is_kept: !rng.chance(1, 3) };
        let began = kept.clock.fetch_add(1, Ordering::SeqCst);
        let outcome = records.write(change.clone(), run).await;
        let span = Span { began, kept: kept.clock.fetch_add(1, Ordering::SeqCst) };
        match outcome {
            Ok(()) => {
                kept.committed.fetch_add(1, Ordering::SeqCst);
                kept.rows.lock().unwrap().extend(change.rows.iter().map(|(number, _)| (*number, span)));
            }
            // One that took too long on a busy machine is given up, and nothing of it is kept.
            Err(Error::Undone | Error::Away(_)) => drop(kept.undone.fetch_add(1, Ordering::SeqCst)),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads until it has seen so many rows and it is over.
async fn follow(records: Records, over: Arc<AtomicBool>, expected: Arc<AtomicU64>) -> Vec<Row> {
    let (mut tail, mut seen) = (Tail::from_start(records), Vec::new());
    let reading = async {
        loop {
            match tail.read_on().await.unwrap() {
                Read::Rows { rows, .. } => seen.extend(rows),
                Read::Restored { .. } => panic!("nothing was restored"),
            }
            if over.load(Ordering::SeqCst) && seen.len() as u64 >= expected.load(Ordering::SeqCst) {
                break;
            }
            // A reader's own pace.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let _ = tokio::time::timeout(SOON, reading).await;
    seen
}

pub(crate) fn number(row: &Row) -> u64 {
    let payload: serde_json::Value = serde_json::from_str(row.payload.as_deref().unwrap()).unwrap();
    payload["n"].as_u64().unwrap()
}

pub(crate) async fn every_committed_row_is_seen_once_by_everybody_in_one_order(database: Database) {
    let mut rng = Rng::for_test("outbox gaps");
    let (writers, transactions) = (8, tier::size(40, 2_000));
    tier::counts_events();
    let kept = Arc::new(Kept::default());
    let (over, expected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
    let mut tails = Vec::new();
    for _ in 0..2 {
        tails.push(tokio::spawn(follow(database.records().await, over.clone(), expected.clone())));
    }
    // Two at once: a lease that has ended without anybody noticing.
    let mut sequencers = Vec::new();
    for _ in 0..2 {
        let (records, over) = (database.records().await, over.clone());
        sequencers.push(tokio::spawn(async move {
            let (mut given, deadline) = (0, Instant::now() + SOON * 2);
            loop {
                assert!(Instant::now() < deadline, "positions are given without end: {given} so far");
                let ends = over.load(Ordering::SeqCst);
                let some = sequence_some(&records).await.unwrap();
                given += some;
                if ends && some == 0 {
                    return given;
                }
                // A sequencer's own pace.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }));
    }
    let mut writing = Vec::new();
    for writer in 0..writers {
        let (records, rng) = (database.records().await, Rng::new(rng.next_u64()));
        writing.push(tokio::spawn(write_many(records, rng, writer * 1_000_000, transactions, kept.clone())));
    }
    for writer in writing {
        writer.await.unwrap();
    }
    expected.store(kept.rows.lock().unwrap().len() as u64, Ordering::SeqCst);
    over.store(true, Ordering::SeqCst);
    let mut given = 0;
    for sequencer in sequencers {
        given += sequencer.await.unwrap();
    }
    let seen = [tails.remove(0).await.unwrap(), tails.remove(0).await.unwrap()];

    let kept_rows = kept.rows.lock().unwrap().clone();
    let (missing, repeated) = compare(&kept_rows, &seen[0]);
    let overtaken = seen[0].windows(2).filter(|pair| pair[0].id > pair[1].id).count();
    let undone = kept.undone.load(Ordering::SeqCst);
    let facts = json!({"database": database.name(), "writers": writers,
        "transactions": kept.committed.load(Ordering::SeqCst) + undone, "undone": undone, "rows": kept_rows.len(), "positions": given,
        "seen": [seen[0].len(), seen[1].len()], "missing": missing.len(), "repeated": repeated, "overtaken": overtaken});
    assert!(missing.is_empty() && repeated == 0, "{facts}: missing {missing:?}");
    assert_eq!(seen[0], seen[1], "both read the same");
    assert_eq!((given, seen[0].len()), (kept_rows.len(), kept_rows.len()), "{facts}");
    let positions: Vec<u64> = seen[0].iter().map(|row| row.position).collect();
    assert_eq!(positions, (1..=positions.len() as u64).collect::<Vec<_>>(), "without a hole, each once");
    in_order(&seen[0], &kept_rows);
    if database.name() != "embedded" {
        assert!(overtaken > 10, "no id was ever seen after a larger one, so this shows nothing: {facts}");
    }
    let name = format!("every_committed_row_is_seen_once_on_{}", database.name());
    proof::record("outbox", &name, facts);
}

fn compare(kept: &BTreeMap<u64, Span>, seen: &[Row]) -> (Vec<u64>, usize) {
    let numbers: BTreeSet<u64> = seen.iter().map(number).collect();
    let missing = kept.keys().filter(|number| !numbers.contains(number)).copied().collect();
    (missing, seen.len() - numbers.len())
}

/// What was kept before another one began to write comes before it.
fn in_order(seen: &[Row], kept: &BTreeMap<u64, Span>) {
    let mut latest = 0;
    for row in seen {
        let span = kept.get(&number(row)).unwrap_or_else(|| panic!("{row:?} was undone"));
        assert!(latest < span.kept, "{row:?} was kept before one began that comes before it");
        latest = latest.max(span.began);
    }
}

/// Waits until a tail has read so many rows more.
pub(crate) async fn next(tail: &mut Tail, count: usize) -> Vec<Row> {
    let tail = tokio::sync::Mutex::new((tail, Vec::new()));
    let enough = wait::holds_within(SOON, || async {
        let mut held = tail.lock().await;
        match held.0.read_on().await.unwrap() {
            Read::Rows { rows, .. } => held.1.extend(rows),
            Read::Restored { .. } => panic!("nothing was restored"),
        }
        held.1.len() >= count
    });
    assert!(enough.await, "too few rows");
    tail.into_inner().1
}
