//! The database is paused or killed while rows are written and read: streams stay open, send no wrong row,
//! and continue without a gap once it is back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use super::fleet::{Database, FLEET_TIMEOUT, Fleet};
use super::follower::{LAST_NUMBER, StreamReader};
use super::ledger::{Ledger, Violations};
use super::rows;
use super::writers::{Pace, run_writers};

const TARGETS: u64 = 2;
const WRITE_PACE: Pace = Pace { within: 20, long_one_in: 40, between: 60, targets: TARGETS };

/// A fault of the database.
#[derive(Clone, Copy)]
enum DatabaseFault {
    Paused,
    Killed,
}

/// Injects faults; returns how many of them hit open transactions.
async fn inject_faults(
    database: &Database,
    loss: DatabaseFault,
    ledger: &Ledger,
    told: &AtomicUsize,
    rng: &mut Rng,
) -> usize {
    let mut landed = 0;
    for _ in 0..tier::size(2, 20) {
        let enough = ledger.commits() + rng.range(30..100) as usize;
        wait::until(FLEET_TIMEOUT, async || ledger.commits() >= enough).await;
        landed += usize::from(ledger.in_flight.load(Ordering::SeqCst) > 0);
        match loss {
            DatabaseFault::Paused => {
                database.pause();
                // The length of the pause is the fault itself, not a wait for a condition.
                sleep(Duration::from_millis(rng.range(1_500..4_000))).await;
                database.resume();
            }
            DatabaseFault::Killed => {
                database.kill9().await;
                // The time without a server is the fault itself, too, not a wait for a condition.
                sleep(Duration::from_millis(rng.range(0..2_000))).await;
                database.restart().await;
            }
        }
        let before = told.load(Ordering::SeqCst);
        wait::until(FLEET_TIMEOUT, async || told.load(Ordering::SeqCst) > before + 50).await;
    }
    landed
}

async fn streams_outlast(flavour: Flavour, loss: DatabaseFault) {
    let Some(fleet) = Fleet::start_on_own_server(Some(flavour)).await else { return };
    let what = match loss {
        DatabaseFault::Paused => "stands_still",
        DatabaseFault::Killed => "is_killed",
    };
    let name = format!("streams_outlast_a_{}_that_{what}", fleet.name());
    let (ledger, mut rng, told) = (Arc::new(Ledger::default()), Rng::for_test(&name), AtomicUsize::new(0));
    let database = fleet.database.as_ref().unwrap();
    let mut readers = Vec::new();
    for target in 0..TARGETS {
        fleet.accept(target, &[7]);
        for hub in &fleet.hubs {
            // These readers never disconnect, so a stream that ends is a fault of the hub.
            let reader =
                StreamReader { hubs: vec![hub], event: target, person: 7, one_drop_in: 0, told: &told };
            let rng = Rng::new(rng.next_u64());
            readers.push(async move { (target, reader.read(rng).await) });
        }
    }
    let mut writing = Rng::new(rng.next_u64());
    let work = async {
        let faults = async {
            let landed = inject_faults(database, loss, &ledger, &told, &mut rng).await;
            ledger.stop();
            landed
        };
        let (landed, ()) = tokio::join!(faults, run_writers(&fleet, &ledger, &mut writing, 12, WRITE_PACE));
        for target in 0..TARGETS {
            fleet.sql(&rows(&target.to_string(), [LAST_NUMBER]));
        }
        landed
    };
    let (landed, followed) = tokio::join!(work, join_all(readers));

    let number = |row: &Vec<String>| {
        let payload: serde_json::Value = serde_json::from_str(&row[0]).unwrap();
        payload["proposal_id"].as_u64().unwrap()
    };
    let in_table: BTreeSet<u64> =
        fleet.query("SELECT payload FROM outbox_events").iter().map(number).collect();
    let unanswered = ledger.settle(&in_table);
    let kept = ledger.kept();
    let wrong: Vec<Violations> =
        followed.iter().map(|(target, told)| Violations::find(&told.numbers, *target, &kept)).collect();
    let found = |count: fn(&Violations) -> usize| wrong.iter().map(count).sum::<usize>();
    let facts = json!({
        "seed": tier::seed(), "losses": landed, "acknowledged": kept.len(), "unanswered": unanswered,
        "delivered": followed.iter().map(|(_, told)| told.numbers.len()).sum::<usize>(),
        "streams": followed.iter().map(|(_, told)| told.streams).sum::<usize>(), "readers": followed.len(),
        "begunAnew": followed.iter().map(|(_, told)| told.resets).sum::<usize>(),
        "missing": found(|wrong| wrong.missing.len()), "repeated": found(|wrong| wrong.repeated.len()),
    });
    proof::record("outbox", &name, &facts);
    for ((target, told), wrong) in followed.iter().zip(&wrong) {
        assert!(wrong.is_empty(), "a reader of {target}: {wrong:?}\n{facts}");
        assert_eq!(told.ids, fleet.row_order(target), "the reader has another order than the table");
        // MariaDB shows a commit before it is on disk. After a crash, positions that readers have seen may be lost
        // and given to other rows: every reader gets a reset then, and none has a gap.
        let may_begin_anew = flavour == Flavour::MariaDb && matches!(loss, DatabaseFault::Killed);
        assert!(may_begin_anew || (told.streams, told.resets) == (1, 0), "a stream ended: {facts}");
    }
    assert!(landed >= tier::size(1, 10), "too few faults hit open transactions: {facts}");
}

#[tokio::test]
async fn streams_survive_a_suspended_postgres() {
    streams_outlast(Flavour::Postgres, DatabaseFault::Paused).await;
}

#[tokio::test]
async fn streams_survive_a_killed_postgres() {
    streams_outlast(Flavour::Postgres, DatabaseFault::Killed).await;
}

#[tokio::test]
async fn streams_survive_a_suspended_mariadb() {
    streams_outlast(Flavour::MariaDb, DatabaseFault::Paused).await;
}

#[tokio::test]
async fn streams_survive_a_killed_mariadb() {
    streams_outlast(Flavour::MariaDb, DatabaseFault::Killed).await;
}
