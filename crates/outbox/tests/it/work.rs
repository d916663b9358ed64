//! What workers do about rows: each once, in the order of its target, tried again, given up at last.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bongsu_kernel::Clock;
use bongsu_outbox::sequence::sequence_some;
use bongsu_outbox::worker::{Failed, Handler};
use bongsu_outbox::{Outbox, Row};
use bongsu_sql::Boxed;

use crate::database::Database;
use crate::places::{insert, source_at};

const NOW: u64 = 1_800_000_000_000;

/// Writes down what it was asked, and answers as it was told to.
#[derive(Default)]
struct Notes {
    asked: Mutex<Vec<(String, i64)>>,
    answers: Mutex<BTreeMap<i64, Failed>>,
}

impl Handler for Notes {
    fn handle<'a>(&'a self, row: &'a Row) -> Boxed<'a, Result<(), Failed>> {
        self.asked.lock().unwrap().push((row.target.clone(), row.id));
        let answer = self.answers.lock().unwrap().get(&row.id).cloned();
        Box::pin(std::future::ready(answer.map_or(Ok(()), Err)))
    }
}

impl Notes {
    fn taken(&self) -> Vec<i64> {
        std::mem::take(&mut *self.asked.lock().unwrap()).into_iter().map(|(_, id)| id).collect()
    }
}

async fn scene(database: &Database) -> (Outbox, Clock, Arc<[String]>, Notes) {
    let (records, clock) = (database.records().await, Clock::manual(NOW));
    let (_, outbox) = source_at(&records, clock.clone()).await;
    // Rows say when they may be done by the database's own clock.
    for (target, count) in [("a", 3), ("b", 2)] {
        insert(database, target, count).await;
    }
    database.execute("UPDATE outbox_events SET available_at = 0").await;
    while sequence_some(&records).await.unwrap() > 0 {}
    insert(database, "c", 1).await;
    (outbox, clock, vec!["test.row.v1".to_owned()].into(), Notes::default())
}

pub(crate) async fn work_is_done_once_and_in_order(database: Database) {
    let (outbox, _, kinds, notes) = scene(&database).await;
    let other: Arc<[String]> = vec!["other.v1".to_owned()].into();
    assert_eq!(outbox.work_once(&other, &notes).await.unwrap(), Some(0), "others' kinds are theirs");
    let mut rounds = Vec::new();
    while outbox.work_once(&kinds, &notes).await.unwrap() != Some(0) {
        rounds.push(notes.taken());
    }
    assert_eq!(rounds, [vec![1, 4], vec![2, 5], vec![3]], "one of each target, and none without a position");
}

pub(crate) async fn what_fails_is_tried_again_and_what_is_away_costs_no_try(database: Database) {
    let (outbox, clock, kinds, notes) = scene(&database).await;
    notes.answers.lock().unwrap().insert(1, Failed::Away("gone fishing".to_owned()));
    for _ in 0..20 {
        assert_eq!(outbox.work_once(&kinds, &notes).await.unwrap(), None);
        assert_eq!(notes.taken(), [1], "the others wait as well");
    }
    notes.answers.lock().unwrap().insert(1, Failed::Refused("no".to_owned()));
    assert_eq!(outbox.work_once(&kinds, &notes).await.unwrap(), Some(2));
    assert_eq!(notes.taken(), [1, 4]);
    assert_eq!(outbox.work_once(&kinds, &notes).await.unwrap(), Some(1));
    assert_eq!(notes.taken(), [5], "another target goes on");
    let mut tries = 1;
    for round in 1..50 {
        clock.set(NOW + round * 600_000);
        outbox.work_once(&kinds, &notes).await.unwrap();
        match notes.taken().as_slice() {
            [1] => tries += 1,
            [2] => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(tries, 8, "then it is given up, and the next one has its turn");
}
