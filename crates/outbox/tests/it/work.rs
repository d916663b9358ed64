//! What workers do about rows: each once, in the order of its target, tried again, given up at last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_kernel::task::Supervisor;
use bongsu_outbox::worker::{Failed, Handler, Worker};
use bongsu_outbox::{Outbox, Row};
use bongsu_part::{DeadLetter, DeadLetters};
use bongsu_sql::Boxed;
use bongsu_testkit::{tier, wait};

use crate::database::Database;
use crate::held::{begin, sequence_all};
use crate::places::source_at;

const NOW: u64 = 1_800_000_000_000;
const MINUTE: u64 = 60_000;
/// All dead letters.
pub(crate) async fn dead_letters(outbox: &Outbox) -> Vec<DeadLetter> {
    outbox.after(i64::MIN, 100).await.unwrap()
}

fn ids(letters: &[DeadLetter]) -> Vec<i64> {
    letters.iter().map(|letter| letter.id).collect()
}

/// Writes down what it was asked, and answers as it was told to.
#[derive(Default)]
struct Notes {
    asked: Mutex<Vec<(String, i64)>>,
    answers: Mutex<BTreeMap<i64, Failed>>,
}

impl Handler for Notes {
    fn wants(&self, event_type: &str) -> bool {
        event_type == "test.row.v1"
    }

    fn handle<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<(), Failed>> {
        self.asked.lock().unwrap().push((row.target.clone(), row.id));
        let answer = self.answers.lock().unwrap().get(&row.id).cloned();
        Box::pin(std::future::ready(answer.map_or(Ok(()), Err)))
    }
}

impl Notes {
    /// What it was asked since the last time: the rows of each target, in the order in which they came.
    fn taken(&self) -> BTreeMap<String, Vec<i64>> {
        let mut taken: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (target, id) in std::mem::take(&mut *self.asked.lock().unwrap()) {
            taken.entry(target).or_default().push(id);
        }
        taken
    }

    fn answer(&self, id: i64, failed: Failed) {
        self.answers.lock().unwrap().insert(id, failed);
    }
}

fn of(targets: &[(&str, &[i64])]) -> BTreeMap<String, Vec<i64>> {
    targets.iter().map(|(target, ids)| ((*target).to_owned(), ids.to_vec())).collect()
}

async fn add(database: &Database, rows: &[(i64, &str)]) {
    let row = |(id, target): &(i64, &str)| format!("({id}, 'test.row.v1', '{{}}', '{target}')");
    let rows: Vec<String> = rows.iter().map(row).collect();
    let columns = "outbox_events (id, event_type, payload, target_event_id)";
    database.execute(&format!("INSERT INTO {columns} VALUES {}", rows.join(", "))).await;
}

/// Three rows of a, two of b, one of c without a position; and one of another kind in front of all.
async fn scene(database: &Database) -> (Outbox, Clock, Arc<Notes>) {
    let (records, clock) = (database.records().await, Clock::manual(NOW));
    let (_, outbox) = source_at(&records, clock.clone()).await;
    database
        .execute(
            "INSERT INTO outbox_events (id, event_type, payload, target_event_id) VALUES (100, 'a.b', '{}', 'a')",
        )
        .await;
    sequence_all(&records).await;
    add(database, &[(101, "a"), (102, "a"), (103, "a"), (104, "b"), (105, "b")]).await;
    // Rows say when they may be done by the database's own clock.
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    sequence_all(&records).await;
    add(database, &[(200, "c")]).await;
    (outbox, clock, Arc::new(Notes::default()))
}

fn worker(outbox: &Outbox, notes: &Arc<Notes>) -> Worker {
    Worker::new(outbox.clone(), notes.clone(), Supervisor::new().stop())
}

pub(crate) async fn work_is_done_once_and_in_order(database: Database) {
    let (outbox, clock, notes) = scene(&database).await;
    let (mut one, mut other) = (worker(&outbox, &notes), worker(&outbox, &notes));
    assert_eq!(one.work_once().await.unwrap(), Some(5));
    assert_eq!(notes.taken(), of(&[("a", &[101, 102, 103]), ("b", &[104, 105])]));
    assert_eq!(other.work_once().await.unwrap(), Some(0), "it is done, and others' kinds are theirs");
    assert_eq!(outbox.depth().await.unwrap(), 0);
    // One that was claimed by somebody who was killed: those behind it wait, until the claim has ended.
    add(&database, &[(201, "a"), (202, "a")]).await;
    let records = database.records().await;
    sequence_all(&records).await;
    let claimed = NOW + MINUTE;
    database
        .execute(&format!(
            "UPDATE outbox_events SET available_at = 0 WHERE id > 200; \
             UPDATE outbox_events SET status = 'PROCESSING', available_at = {claimed} WHERE id = 201"
        ))
        .await;
    for worker in [&mut one, &mut other] {
        worker.work_once().await.unwrap();
    }
    assert_eq!(notes.taken(), of(&[("c", &[200])]));
    clock.set(claimed + 1);
    other.work_once().await.unwrap();
    assert_eq!(notes.taken(), of(&[("a", &[201, 202])]));
    assert_eq!(one.work_once().await.unwrap(), Some(0));
}

pub(crate) async fn what_fails_is_tried_again_and_what_is_away_costs_no_try(database: Database) {
    let (outbox, clock, notes) = scene(&database).await;
    let mut worker = worker(&outbox, &notes);
    notes.answer(101, Failed::Away("gone fishing".to_owned()));
    for _ in 0..20 {
        assert_eq!(worker.work_once().await.unwrap(), None);
        assert_eq!(notes.taken()["a"], [101], "what is behind it waits");
    }
    notes.answer(101, Failed::Refused("no".to_owned()));
    worker.work_once().await.unwrap();
    assert_eq!(notes.taken()["a"], [101]);
    worker.work_once().await.unwrap();
    assert_eq!(notes.taken().get("a"), None, "it waits, and so does what is behind it");
    let mut tries = 1;
    for round in 1..50 {
        clock.set(NOW + round * 10 * MINUTE);
        worker.work_once().await.unwrap();
        tries += 1;
        match notes.taken().get("a").map(Vec::as_slice) {
            Some([101]) => {}
            Some([101, 102, 103]) => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(tries, 8, "then it is given up, and the others have their turn");
    let letters = dead_letters(&outbox).await;
    let told: Vec<(i64, u64, &str)> =
        letters.iter().map(|letter| (letter.id, letter.attempts, letter.reason.as_str())).collect();
    assert_eq!(told, [(101, 8, "no")]);
    // Once more, and it fails again; and then it works.
    assert_eq!(outbox.redrive(ids(&letters)).await.unwrap(), 1);
    assert_eq!(outbox.depth().await.unwrap(), 0);
    worker.work_once().await.unwrap();
    assert_eq!(notes.taken()["a"], [101]);
    notes.answers.lock().unwrap().clear();
    clock.set(NOW + 600 * MINUTE);
    assert_eq!(worker.work_once().await.unwrap(), Some(1));
    assert_eq!(notes.taken()["a"], [101]);
    clock.set(NOW + 700 * MINUTE);
    assert_eq!(worker.work_once().await.unwrap(), Some(0));
}

pub(crate) async fn what_nobody_can_be_told_of_is_marked_and_passed_over(database: Database) {
    let (outbox, _, notes) = scene(&database).await;
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
    // As a program writes that does not know the column.
    database.execute("INSERT INTO outbox_events (id, event_type, payload) VALUES (306, 'a.b', '{}')").await;
    sequence_all(&records).await;
    let letters = dead_letters(&outbox).await;
    assert_eq!(ids(&letters), [301, 302, 303, 304, 306]);
    assert!(letters.iter().all(|letter| !letter.reason.is_empty()), "{letters:?}");
    assert_eq!(outbox.redrive(ids(&letters)).await.unwrap(), 0, "they stay what they are");
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    worker(&outbox, &notes).work_once().await.unwrap();
    assert_eq!(notes.taken()["a"], [101, 102, 103, 305]);
    // Once it is mended it can be dealt with, and what is let go is gone.
    database.execute("UPDATE outbox_events SET payload = '{}' WHERE id = 301").await;
    let letters = dead_letters(&outbox).await;
    assert_eq!(outbox.redrive(ids(&letters)).await.unwrap(), 1);
    assert!(outbox.discard(302).await.unwrap());
    assert!(!outbox.discard(302).await.unwrap());
    assert_eq!(outbox.depth().await.unwrap(), 3);
}

pub(crate) async fn what_somebody_holds_holds_up_its_own_target_only(database: Database) {
    if database.name() == "embedded" {
        return tier::not_applicable(crate::held::ONE_WRITER);
    }
    let (outbox, _, notes) = scene(&database).await;
    // More of it than is claimed at once.
    let many: Vec<(i64, &str)> = (1_000..1_300).map(|id| (id, "a")).collect();
    add(&database, &many).await;
    add(&database, &[(2_000, "d")]).await;
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    let records = database.records().await;
    sequence_all(&records).await;
    let mut worker = worker(&outbox, &notes);
    let (end, running) = begin(database.records().await, "held", Some(101)).await;
    let (mut taken, mut turns) = (BTreeMap::new(), 0..1_000);
    while worker.work_once().await.unwrap() != Some(0) {
        assert!(turns.next().is_some(), "there is always more to do");
        taken.extend(notes.taken());
    }
    assert_eq!(taken, of(&[("b", &[104, 105]), ("c", &[200]), ("d", &[2_000])]));
    end.send_replace(true);
    running.await.unwrap().unwrap();
    worker.work_once().await.unwrap();
    assert_eq!(notes.taken()["a"][..3], [101, 102, 103]);
}

pub(crate) async fn a_restored_database_is_worked_through_anew(database: Database) {
    let (outbox, _, notes) = scene(&database).await;
    let mut worker = worker(&outbox, &notes);
    let sees = async |position: u64| {
        let is_there = async || outbox.reached() == position;
        wait::until(Duration::from_secs(60), is_there).await;
    };
    sees(6).await;
    worker.work_once().await.unwrap();
    assert_eq!(notes.taken().len(), 2);
    database
        .execute("DELETE FROM outbox_events WHERE position > 3; UPDATE bongsu_outbox_head SET position = 3")
        .await;
    sees(3).await;
    add(&database, &[(301, "a"), (302, "b")]).await;
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    let records = database.records().await;
    sequence_all(&records).await;
    worker.work_once().await.unwrap();
    assert_eq!(notes.taken(), of(&[("a", &[301]), ("b", &[302]), ("c", &[200])]));
}
