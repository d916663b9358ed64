//! Tests of workers: they handle each row once, in the order of its target, retry failures, and give rows up after the
//! last attempt.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_outbox::worker::{Handler, HandlerError, Worker};
use bongsu_outbox::{Outbox, OutboxRow};
use bongsu_part::{DeadLetter, DeadLetters};
use bongsu_sql::BoxFuture;
use bongsu_testkit::{tier, wait};

use crate::database::Database;
use crate::locked_rows::{begin, sequence_all};
use crate::positions::source_at;

const NOW: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;

/// All dead letters.
pub(crate) async fn dead_letters(outbox: &Outbox) -> Vec<DeadLetter> {
    outbox.list_after(i64::MIN, 100).await.unwrap()
}

fn ids(letters: &[DeadLetter]) -> Vec<i64> {
    letters.iter().map(|letter| letter.id).collect()
}

/// Records the rows that it is called with, and returns the results that the test has set.
#[derive(Default)]
struct RecordingHandler {
    /// Target and id of each row.
    calls: Mutex<Vec<(String, i64)>>,
    /// The errors by row id; other rows succeed.
    errors: Mutex<BTreeMap<i64, HandlerError>>,
}

impl Handler for RecordingHandler {
    fn handles(&self, event_type: &str) -> bool {
        event_type == "test.row.v1"
    }

    fn handle<'a>(&'a self, row: &'a OutboxRow) -> BoxFuture<'a, Result<(), HandlerError>> {
        self.calls.lock().unwrap().push((row.target.clone(), row.id));
        let error = self.errors.lock().unwrap().get(&row.id).cloned();
        Box::pin(std::future::ready(error.map_or(Ok(()), Err)))
    }
}

impl RecordingHandler {
    /// Removes and returns the recorded calls: the row ids of each target, in the order of the calls.
    fn take_calls(&self) -> BTreeMap<String, Vec<i64>> {
        let mut calls: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (target, id) in std::mem::take(&mut *self.calls.lock().unwrap()) {
            calls.entry(target).or_default().push(id);
        }
        calls
    }

    fn set_error(&self, id: i64, error: HandlerError) {
        self.errors.lock().unwrap().insert(id, error);
    }
}

fn calls(targets: &[(&str, &[i64])]) -> BTreeMap<String, Vec<i64>> {
    targets.iter().map(|(target, ids)| ((*target).to_owned(), ids.to_vec())).collect()
}

async fn add(database: &Database, rows: &[(i64, &str)]) {
    let row = |(id, target): &(i64, &str)| format!("({id}, 'test.row.v1', '{{}}', '{target}')");
    let rows: Vec<String> = rows.iter().map(row).collect();
    let columns = "outbox_events (id, event_type, payload, target_event_id)";
    database.execute(&format!("INSERT INTO {columns} VALUES {}", rows.join(", "))).await;
}

/// Writes a row of another type, then three rows of a, two of b, and one of c without a position.
async fn scene(database: &Database) -> (Outbox, Clock, Arc<RecordingHandler>) {
    let (records, clock) = (database.records().await, Clock::manual(NOW));
    let (_, outbox) = source_at(&records, clock.clone()).await;
    database
        .execute(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id) VALUES (100, 'a.b', '{}', 'a')",
        )
        .await;
    sequence_all(&records).await;
    add(database, &[(101, "a"), (102, "a"), (103, "a"), (104, "b"), (105, "b")]).await;
    // The default of `available_at` is the clock of the database, which is not that of the test.
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    sequence_all(&records).await;
    add(database, &[(200, "c")]).await;
    (outbox, clock, Arc::new(RecordingHandler::default()))
}

fn worker(outbox: &Outbox, handler: &Arc<RecordingHandler>) -> Worker {
    Worker::new(outbox.clone(), handler.clone(), Supervisor::new().stop())
}

pub(crate) async fn rows_are_handled_once_and_in_order(database: Database) {
    let (outbox, clock, handler) = scene(&database).await;
    let (mut one, mut other) = (worker(&outbox, &handler), worker(&outbox, &handler));
    assert_eq!(one.process_batch().await.unwrap(), Some(5));
    assert_eq!(handler.take_calls(), calls(&[("a", &[101, 102, 103]), ("b", &[104, 105])]));
    assert_eq!(other.process_batch().await.unwrap(), Some(0), "all rows of the handled type are done");
    assert_eq!(outbox.depth().await.unwrap(), 0);
    // A killed worker has claimed row 201: the later rows of its target wait until the claim has ended.
    add(&database, &[(201, "a"), (202, "a")]).await;
    let records = database.records().await;
    sequence_all(&records).await;
    let claimed_until = NOW + MINUTE;
    database
        .execute(&format!(
            "UPDATE outbox_events SET available_at = 0 WHERE id > 200; \
             UPDATE outbox_events SET status = 'PROCESSING', available_at = {claimed_until} WHERE id = 201"
        ))
        .await;
    for worker in [&mut one, &mut other] {
        worker.process_batch().await.unwrap();
    }
    assert_eq!(handler.take_calls(), calls(&[("c", &[200])]));
    clock.set(claimed_until + 1);
    other.process_batch().await.unwrap();
    assert_eq!(handler.take_calls(), calls(&[("a", &[201, 202])]));
    assert_eq!(one.process_batch().await.unwrap(), Some(0));
}

pub(crate) async fn failures_are_retried_and_outages_cost_no_attempt(database: Database) {
    let (outbox, clock, handler) = scene(&database).await;
    let mut worker = worker(&outbox, &handler);
    handler.set_error(101, HandlerError::Unavailable("the service is down".to_owned()));
    for _ in 0..20 {
        assert_eq!(worker.process_batch().await.unwrap(), None);
        assert_eq!(handler.take_calls()["a"], [101], "the rows behind it wait");
    }
    handler.set_error(101, HandlerError::Retryable("no".to_owned()));
    worker.process_batch().await.unwrap();
    assert_eq!(handler.take_calls()["a"], [101]);
    worker.process_batch().await.unwrap();
    assert_eq!(handler.take_calls().get("a"), None, "the row is parked, and the rows behind it wait");
    let mut attempts = 1;
    for round in 1..50 {
        clock.set(NOW + round * 10 * MINUTE);
        worker.process_batch().await.unwrap();
        attempts += 1;
        match handler.take_calls().get("a").map(Vec::as_slice) {
            Some([101]) => {}
            Some([101, 102, 103]) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(attempts, 8, "then the row is given up, and the next ones are handled");
    let letters = dead_letters(&outbox).await;
    let given_up: Vec<(i64, u64, &str)> =
        letters.iter().map(|letter| (letter.id, letter.attempts, letter.reason.as_str())).collect();
    assert_eq!(given_up, [(101, 8, "no")]);
    // After a redrive the row fails once more, and then succeeds.
    assert_eq!(outbox.redrive(ids(&letters)).await.unwrap(), 1);
    assert_eq!(outbox.depth().await.unwrap(), 0);
    worker.process_batch().await.unwrap();
    assert_eq!(handler.take_calls()["a"], [101]);
    // For a worker that starts now, too, the row is outside the order: it holds back no later row of its target.
    add(&database, &[(110, "a")]).await;
    sequence_all(&database.records().await).await;
    database.execute("UPDATE outbox_events SET available_at = 0 WHERE id = 110").await;
    assert_eq!(self::worker(&outbox, &handler).process_batch().await.unwrap(), Some(2));
    assert_eq!(handler.take_calls(), calls(&[("a", &[110]), ("c", &[200])]));
    handler.errors.lock().unwrap().clear();
    clock.set(NOW + 600 * MINUTE);
    assert_eq!(worker.process_batch().await.unwrap(), Some(1));
    assert_eq!(handler.take_calls()["a"], [101]);
    clock.set(NOW + 700 * MINUTE);
    assert_eq!(worker.process_batch().await.unwrap(), Some(0));
}

pub(crate) async fn rows_that_cannot_be_sent_are_marked_and_skipped(database: Database) {
    let (outbox, _, handler) = scene(&database).await;
    let records = database.records().await;
    let large = match database.name() {
        "embedded" => r#"'"' || hex(zeroblob(524288)) || '"'"#,
        "postgres" => r#"'"' || repeat('y', 1048576) || '"'"#,
        _ => r#"CONCAT('"', REPEAT('y', 1048576), '"')"#,
    };
    let columns = "outbox_events (id, event_type, payload, target_event_id)";
    for (id, kind, payload, target) in [
        (301, "test.row.v1", "'{broken'", "a"),
        (302, "test.row.v1", large, "a"),
        (303, "Unknown Type", "'{}'", "a"),
        (304, "test.row.v1", "'{}'", "no id"),
        (305, "test.row.v1", "'{}'", "a"),
    ] {
        let row = format!("({id}, '{kind}', {payload}, '{target}')");
        database.execute(&format!("INSERT INTO {columns} VALUES {row}")).await;
    }
    // A program writes a row without the column of the target.
    database.execute("INSERT INTO outbox_events (id, event_type, payload) VALUES (306, 'a.b', '{}')").await;
    sequence_all(&records).await;
    let letters = dead_letters(&outbox).await;
    assert_eq!(ids(&letters), [301, 302, 303, 304, 306]);
    assert!(letters.iter().all(|letter| !letter.reason.is_empty()), "{letters:?}");
    assert_eq!(outbox.redrive(ids(&letters)).await.unwrap(), 0, "invalid rows are not redriven");
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    worker(&outbox, &handler).process_batch().await.unwrap();
    assert_eq!(handler.take_calls()["a"], [101, 102, 103, 305]);
    // A corrected row can be redriven, and a deleted dead letter is gone.
    database.execute("UPDATE outbox_events SET payload = '{}' WHERE id = 301").await;
    let letters = dead_letters(&outbox).await;
    assert_eq!(outbox.redrive(ids(&letters)).await.unwrap(), 1);
    assert!(outbox.discard(302).await.unwrap());
    assert!(!outbox.discard(302).await.unwrap());
    assert_eq!(outbox.depth().await.unwrap(), 3);
}

pub(crate) async fn a_locked_row_delays_only_later_rows_of_its_target(database: Database) {
    if database.name() == "embedded" {
        return tier::not_applicable(crate::locked_rows::ONE_WRITER);
    }
    let (outbox, _, handler) = scene(&database).await;
    // The target has more rows than one claim takes.
    let many: Vec<(i64, &str)> = (1_000..1_300).map(|id| (id, "a")).collect();
    add(&database, &many).await;
    add(&database, &[(2_000, "d")]).await;
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    let records = database.records().await;
    sequence_all(&records).await;
    let mut worker = worker(&outbox, &handler);
    let (end, running) = begin(database.records().await, "held", Some(101)).await;
    let (mut handled, mut batches) = (BTreeMap::new(), 0..1_000);
    while worker.process_batch().await.unwrap() != Some(0) {
        assert!(batches.next().is_some(), "the worker does not finish");
        handled.extend(handler.take_calls());
    }
    assert_eq!(handled, calls(&[("b", &[104, 105]), ("c", &[200]), ("d", &[2_000])]));
    end.send_replace(true);
    running.await.unwrap().unwrap();
    worker.process_batch().await.unwrap();
    assert_eq!(handler.take_calls()["a"][..3], [101, 102, 103]);
}

pub(crate) async fn a_restored_database_is_scanned_again(database: Database) {
    let (outbox, _, handler) = scene(&database).await;
    let mut worker = worker(&outbox, &handler);
    let wait_for_tail = async |position: u64| {
        let is_reached = async || outbox.delivered_position() == position;
        wait::until(Duration::from_secs(60), is_reached).await;
    };
    wait_for_tail(6).await;
    worker.process_batch().await.unwrap();
    assert_eq!(handler.take_calls().len(), 2);
    database
        .execute("DELETE FROM outbox_events WHERE position > 3; UPDATE bongsu_outbox_head SET position = 3")
        .await;
    wait_for_tail(3).await;
    add(&database, &[(301, "a"), (302, "b")]).await;
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    let records = database.records().await;
    sequence_all(&records).await;
    worker.process_batch().await.unwrap();
    assert_eq!(handler.take_calls(), calls(&[("a", &[301]), ("b", &[302]), ("c", &[200])]));
}
