//! The database stands still or is killed while rows are written and followed: streams stay open, say nothing wrong, and go on
//! without a hole once it is back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use super::fleet::{Database, Fleet, LONG};
use super::follower::{Follower, LAST};
use super::ledger::{Ledger, Wrong};
use super::rows;
use super::writers::{Pace, write_many};

const TARGETS: u64 = 2;
const PACE: Pace = Pace { within: 20, long_one_in: 40, between: 60, targets: TARGETS };

/// What happens to the database.
#[derive(Clone, Copy)]
enum Loss {
    StandsStill,
    IsKilled,
}

/// How many losses met transactions under way.
async fn lose(database: &Database, loss: Loss, ledger: &Ledger, told: &AtomicUsize, rng: &mut Rng) -> usize {
    let mut landed = 0;
    for _ in 0..tier::size(2, 20) {
        let enough = ledger.commits() + rng.range(30..100) as usize;
        wait::until(LONG, async || ledger.commits() >= enough).await;
        landed += usize::from(ledger.in_flight.load(Ordering::SeqCst) > 0);
        match loss {
            Loss::StandsStill => {
                database.pause();
                // How long it stands still is the fault, not a wait for something.
                sleep(Duration::from_millis(rng.range(1_500..4_000))).await;
                database.resume();
            }
            Loss::IsKilled => {
                database.kill9().await;
                // So is how long it is away.
                sleep(Duration::from_millis(rng.range(0..2_000))).await;
                database.restart().await;
            }
        }
        let before = told.load(Ordering::SeqCst);
        wait::until(LONG, async || told.load(Ordering::SeqCst) > before + 50).await;
    }
    landed
}

async fn streams_outlast(flavour: Flavour, loss: Loss) {
    let Some(fleet) = Fleet::start_apart(Some(flavour)).await else { return };
    let what = match loss {
        Loss::StandsStill => "stands_still",
        Loss::IsKilled => "is_killed",
    };
    let name = format!("streams_outlast_a_{}_that_{what}", fleet.name());
    let (ledger, mut rng, told) = (Arc::new(Ledger::default()), Rng::for_test(&name), AtomicUsize::new(0));
    let database = fleet.database.as_ref().unwrap();
    let mut readers = Vec::new();
    for target in 0..TARGETS {
        fleet.accept(target, &[7]);
        for hub in &fleet.hubs {
            // They never drop: what ends their streams is a fault of the hub's.
            let follower =
                Follower { hubs: vec![hub], event: target, person: 7, drops_one_in: 0, told: &told };
            let rng = Rng::new(rng.next_u64());
            readers.push(async move { (target, follower.follow(rng).await) });
        }
    }
    let mut writing = Rng::new(rng.next_u64());
    let work = async {
        let faults = async {
            let landed = lose(database, loss, &ledger, &told, &mut rng).await;
            ledger.stop();
            landed
        };
        let (landed, ()) = tokio::join!(faults, write_many(&fleet, &ledger, &mut writing, 12, PACE));
        for target in 0..TARGETS {
            fleet.sql(&rows(&target.to_string(), [LAST]));
        }
        landed
    };
    let (landed, followed) = tokio::join!(work, join_all(readers));

    let number = |row: &Vec<String>| {
        let payload: serde_json::Value = serde_json::from_str(&row[0]).unwrap();
        payload["proposal_id"].as_u64().unwrap()
    };
    let in_table: BTreeSet<u64> = fleet.ask("SELECT payload FROM outbox_events").iter().map(number).collect();
    let unanswered = ledger.settle(&in_table);
    let kept = ledger.kept();
    let wrong: Vec<Wrong> =
        followed.iter().map(|(target, told)| Wrong::with(&told.numbers, *target, &kept)).collect();
    let found = |count: fn(&Wrong) -> usize| wrong.iter().map(count).sum::<usize>();
    let facts = json!({
        "seed": tier::seed(), "losses": landed, "acknowledged": kept.len(), "unanswered": unanswered,
        "delivered": followed.iter().map(|(_, told)| told.numbers.len()).sum::<usize>(),
        "streams": followed.iter().map(|(_, told)| told.streams).sum::<usize>(), "readers": followed.len(),
        "begunAnew": followed.iter().map(|(_, told)| told.resets).sum::<usize>(),
        "missing": found(|wrong| wrong.missing.len()), "repeated": found(|wrong| wrong.repeated.len()),
    });
    proof::record("outbox", &name, &facts);
    for ((target, told), wrong) in followed.iter().zip(&wrong) {
        assert!(wrong.is_nothing(), "a reader of {target}: {wrong:?}\n{facts}");
        assert_eq!(told.ids, fleet.order(target), "another order than the table's");
        // MariaDB shows a commit before it is on the disk. Positions that were seen and are gone after a crash may be given
        // to others: then everybody is told, and nobody has a hole.
        let may_begin_anew = flavour == Flavour::MariaDb && matches!(loss, Loss::IsKilled);
        assert!(may_begin_anew || (told.streams, told.resets) == (1, 0), "a stream ended: {facts}");
    }
    assert!(landed >= tier::size(1, 10), "too few losses met transactions under way: {facts}");
}

#[tokio::test]
async fn streams_outlast_a_postgres_that_stands_still() {
    streams_outlast(Flavour::Postgres, Loss::StandsStill).await;
}

#[tokio::test]
async fn streams_outlast_a_postgres_that_is_killed() {
    streams_outlast(Flavour::Postgres, Loss::IsKilled).await;
}

#[tokio::test]
async fn streams_outlast_a_mariadb_that_stands_still() {
    streams_outlast(Flavour::MariaDb, Loss::StandsStill).await;
}

#[tokio::test]
async fn streams_outlast_a_mariadb_that_is_killed() {
    streams_outlast(Flavour::MariaDb, Loss::IsKilled).await;
}
