//! The central guarantee: the order of ids is not the order of commits, and still no row is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bongsu_kernel::Id;
use bongsu_kernel::json::Object;
use bongsu_outbox::sequence::sequence_batch;
use bongsu_outbox::tail::{Tail, TailRead};
use bongsu_outbox::{Event, OutboxRow, record};
use bongsu_sql::{Dialect, Error, Records, Transaction};
use bongsu_testkit::{Rng, proof, tier, wait};
use serde_json::json;

use crate::database::Database;

/// How long a test waits for an expected change.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// A transaction of a program: it writes rows of some targets, with a pause after each, and is committed or rolled
/// back.
#[derive(Clone, Debug)]
struct TestTransaction {
    /// The number and the target of each row.
    rows: Vec<(u64, u64)>,
    /// The pause after each row, in milliseconds.
    pauses: Vec<u64>,
    commits: bool,
}

/// Writes a row of a target with a number in its payload.
pub(crate) async fn write(tx: &mut Transaction<'_>, number: u64, target: &str) -> Result<(), Error> {
    let payload = Object::from_stored(&format!("{{\"n\":{number}}}")).unwrap();
    let target = Id::new(target).unwrap();
    let event = Event { event_type: "test.row.v1", payload: &payload, target: &target, traceparent: None };
    record(tx, event).await
}

async fn run(transaction: &TestTransaction, tx: &mut Transaction<'_>) -> Result<(), Error> {
    for ((number, target), pause) in transaction.rows.iter().zip(&transaction.pauses) {
        write(tx, *number, &target.to_string()).await?;
        // The embedded file has one writer at a time, so a pause would only delay the other transactions.
        if tx.dialect() != Dialect::Sqlite {
            // The duration of a program's transaction.
            tokio::time::sleep(Duration::from_millis(*pause)).await;
        }
    }
    if transaction.commits { Ok(()) } else { Err(Error::RolledBack) }
}

/// When a transaction began, and when its writer knew that it was committed, on the logical clock of all writers.
#[derive(Clone, Copy)]
struct Span {
    began: u64,
    committed: u64,
}

/// The outcomes of all transactions.
#[derive(Default)]
struct Ledger {
    clock: AtomicU64,
    /// The committed rows by number.
    rows: Mutex<BTreeMap<u64, Span>>,
    rolled_back: AtomicU64,
    committed: AtomicU64,
}

/// Runs `transactions` random transactions in succession, and records their outcomes in the ledger.
async fn write_many(records: Records, mut rng: Rng, first: u64, transactions: usize, ledger: Arc<Ledger>) {
    let mut next = first;
    for _ in 0..transactions {
        let count = rng.range(1..4);
        let rows = (next..next + count).map(|number| (number, rng.below(5))).collect();
        next += count;
        // Mostly short transactions, and some long ones, which many others overtake.
        let pauses =
            (0..count).map(|_| if rng.chance(1, 8) { rng.below(80) } else { rng.below(4) }).collect();
        let transaction = TestTransaction { rows, pauses, commits: !rng.chance(1, 3) };
        let began = ledger.clock.fetch_add(1, Ordering::SeqCst);
        let outcome = records.write(transaction.clone(), run).await;
        let span = Span { began, committed: ledger.clock.fetch_add(1, Ordering::SeqCst) };
        match outcome {
            Ok(()) => {
                ledger.committed.fetch_add(1, Ordering::SeqCst);
                let rows = transaction.rows.iter().map(|(number, _)| (*number, span));
                ledger.rows.lock().unwrap().extend(rows);
            }
            // A transaction that exceeds its timeout on a busy machine is rolled back.
            Err(Error::RolledBack | Error::Unavailable(_)) => {
                ledger.rolled_back.fetch_add(1, Ordering::SeqCst);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads until all writers have finished and the expected number of rows was read.
async fn read_all(records: Records, is_over: Arc<AtomicBool>, expected: Arc<AtomicU64>) -> Vec<OutboxRow> {
    let (mut tail, mut seen) = (Tail::from_start(records), Vec::new());
    let reading = async {
        loop {
            match tail.read_next().await.unwrap() {
                TailRead::Rows { rows, .. } => seen.extend(rows),
                TailRead::Restored { .. } => panic!("the database was not restored"),
            }
            if is_over.load(Ordering::SeqCst) && seen.len() as u64 >= expected.load(Ordering::SeqCst) {
                break;
            }
            // The time between two reads.
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    };
    let _ = tokio::time::timeout(WAIT_TIMEOUT, reading).await;
    seen
}

/// The number in the payload of a row that [`write`] has written.
pub(crate) fn number(row: &OutboxRow) -> u64 {
    let payload: serde_json::Value = serde_json::from_str(row.payload.as_deref().unwrap()).unwrap();
    payload["n"].as_u64().unwrap()
}

pub(crate) async fn every_committed_row_is_read_once_by_every_tail_in_one_order(database: Database) {
    let mut rng = Rng::for_test("outbox gaps");
    let (writers, transactions) = (8, tier::size(40, 2_000));
    tier::counts_events();
    let ledger = Arc::new(Ledger::default());
    let (is_over, expected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(u64::MAX)));
    let mut tails = Vec::new();
    for _ in 0..2 {
        tails.push(tokio::spawn(read_all(database.records().await, is_over.clone(), expected.clone())));
    }
    // Two sequencers at the same time, as when a runner has lost its lease and not noticed it yet.
    let mut sequencers = Vec::new();
    for _ in 0..2 {
        let (records, is_over) = (database.records().await, is_over.clone());
        sequencers.push(tokio::spawn(async move {
            let (mut sequenced, deadline) = (0, Instant::now() + WAIT_TIMEOUT * 2);
            loop {
                assert!(Instant::now() < deadline, "the sequencer does not finish: {sequenced} rows so far");
                let was_over = is_over.load(Ordering::SeqCst);
                let batch = sequence_batch(&records).await.unwrap();
                sequenced += batch;
                if was_over && batch == 0 {
                    return sequenced;
                }
                // The time between two passes.
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }));
    }
    let mut writer_tasks = Vec::new();
    for writer in 0..writers {
        let (records, rng) = (database.records().await, Rng::new(rng.next_u64()));
        let task = write_many(records, rng, writer * 1_000_000, transactions, ledger.clone());
        writer_tasks.push(tokio::spawn(task));
    }
    for task in writer_tasks {
        task.await.unwrap();
    }
    expected.store(ledger.rows.lock().unwrap().len() as u64, Ordering::SeqCst);
    is_over.store(true, Ordering::SeqCst);
    let mut sequenced = 0;
    for sequencer in sequencers {
        sequenced += sequencer.await.unwrap();
    }
    let seen = [tails.remove(0).await.unwrap(), tails.remove(0).await.unwrap()];

    let committed_rows = ledger.rows.lock().unwrap().clone();
    let (missing, repeated) = compare(&committed_rows, &seen[0]);
    let overtaken = seen[0].windows(2).filter(|pair| pair[0].id > pair[1].id).count();
    let rolled_back = ledger.rolled_back.load(Ordering::SeqCst);
    let facts = json!({"database": database.name(), "writers": writers,
        "transactions": ledger.committed.load(Ordering::SeqCst) + rolled_back, "undone": rolled_back,
        "rows": committed_rows.len(), "positions": sequenced,
        "seen": [seen[0].len(), seen[1].len()], "missing": missing.len(), "repeated": repeated, "overtaken": overtaken});
    assert!(missing.is_empty() && repeated == 0, "{facts}: missing {missing:?}");
    assert_eq!(seen[0], seen[1], "both tails read the same rows");
    assert_eq!((sequenced, seen[0].len()), (committed_rows.len(), committed_rows.len()), "{facts}");
    let positions: Vec<u64> = seen[0].iter().map(|row| row.position).collect();
    assert_eq!(positions, (1..=positions.len() as u64).collect::<Vec<_>>(), "no gap and no duplicate");
    assert_commit_order(&seen[0], &committed_rows);
    if database.name() != "embedded" {
        assert!(overtaken > 10, "the load is too light: ids were read in their order: {facts}");
    }
    let name = format!("every_committed_row_is_seen_once_on_{}", database.name());
    proof::record("outbox", &name, facts);
}

/// The committed rows that were not read, and how many rows were read more than once.
fn compare(committed: &BTreeMap<u64, Span>, seen: &[OutboxRow]) -> (Vec<u64>, usize) {
    let numbers: BTreeSet<u64> = seen.iter().map(number).collect();
    let missing = committed.keys().filter(|number| !numbers.contains(number)).copied().collect();
    (missing, seen.len() - numbers.len())
}

/// Asserts that a row that was committed before another transaction began comes before the rows of that transaction.
fn assert_commit_order(seen: &[OutboxRow], committed: &BTreeMap<u64, Span>) {
    let mut latest = 0;
    for row in seen {
        let span = committed.get(&number(row)).unwrap_or_else(|| panic!("{row:?} was rolled back"));
        assert!(
            latest < span.committed,
            "{row:?} was committed before the transaction of an earlier row began"
        );
        latest = latest.max(span.began);
    }
}

/// Waits until a tail has read at least `count` more rows, and returns them.
pub(crate) async fn read_rows(tail: &mut Tail, count: usize) -> Vec<OutboxRow> {
    let state = tokio::sync::Mutex::new((tail, Vec::new()));
    let is_complete = wait::holds_within(WAIT_TIMEOUT, || async {
        let mut state = state.lock().await;
        match state.0.read_next().await.unwrap() {
            TailRead::Rows { rows, .. } => state.1.extend(rows),
            TailRead::Restored { .. } => panic!("the database was not restored"),
        }
        state.1.len() >= count
    });
    assert!(is_complete.await, "too few rows");
    state.into_inner().1
}
