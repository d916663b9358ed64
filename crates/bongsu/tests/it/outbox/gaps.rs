//! Ids say nothing about order: with transactions of all lengths, readers that come and go, and the hub that gives positions
//! killed and paused, everybody sees every row that was kept, once, in one order in which what could be seen comes first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bongsu_testkit::hub::Signal;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;

use super::fleet::{Fleet, LONG};
use super::follower::{Followed, Follower, LAST};
use super::ledger::{Ledger, Wrong};
use super::rows;
use super::writers::{Pace, write_many};

pub(super) const TARGETS: u64 = 4;
pub(super) const SERVERS: Pace = Pace { within: 60, long_one_in: 25, between: 250, targets: TARGETS };
/// There one writes at a time, and the hub needs its turn, too.
const FILE: Pace = Pace { within: 30, long_one_in: 60, between: 300, targets: TARGETS };

/// Kills and pauses of the hub that gives positions: how many landed while transactions were under way and positions were
/// given afterwards.
async fn faults(fleet: &Fleet, ledger: &Ledger, told: &AtomicUsize, rng: &mut Rng) -> [usize; 2] {
    let (rounds, mut landed) = (tier::size(4, 60), [0, 0]);
    for round in 0..rounds {
        let enough = ledger.commits() + rng.range(20..100) as usize;
        wait::until(LONG, async || ledger.commits() >= enough).await;
        wait::until(LONG, async || fleet.sequencer().is_some()).await;
        let Some(at) = fleet.sequencer() else { continue };
        let (hub, alone) = (&fleet.hubs[at], fleet.hubs.len() == 1);
        let under_way = || ledger.in_flight.load(Ordering::SeqCst) > 0;
        wait::until(LONG, async || under_way()).await;
        if round % 2 == 0 {
            hub.kill9().await;
            landed[0] += usize::from(under_way());
            if !alone && rng.chance(1, 2) {
                fleet.taken_over_from(at).await;
            }
            hub.restart().await;
        } else {
            hub.send_signal(Signal::STOP);
            if alone {
                ensure_stopped_without_lock(hub, ledger).await;
            }
            landed[1] += usize::from(under_way());
            let commits = ledger.commits();
            if alone {
                wait::until(LONG, async || ledger.commits() > commits + 20).await;
            } else {
                // Longer than its lease: another one has it by then.
                fleet.taken_over_from(at).await;
            }
            hub.send_signal(Signal::CONT);
        }
        let before = told.load(Ordering::SeqCst);
        wait::until(LONG, async || told.load(Ordering::SeqCst) > before + 100).await;
    }
    landed
}

/// A hub that is stopped within a transaction keeps SQLite's write lock, so no writer can commit. Resumes such a hub and stops
/// it again until the writers can commit.
async fn ensure_stopped_without_lock(hub: &Hub, ledger: &Ledger) {
    let deadline = Instant::now() + LONG;
    loop {
        let commits = ledger.commits();
        // One commit may have been on its way back when the hub was stopped.
        if wait::holds_within(Duration::from_secs(5), async || ledger.commits() > commits + 1).await {
            return;
        }
        assert!(Instant::now() < deadline, "nobody can write, whenever the hub is stopped");
        hub.send_signal(Signal::CONT);
        wait::until(LONG, async || ledger.commits() > commits + 1).await;
        hub.send_signal(Signal::STOP);
    }
}

/// What readers of all targets were told, each target by several: some stay with their hub, some come back to any.
async fn scene(
    fleet: &Fleet,
    ledger: &Arc<Ledger>,
    rng: &mut Rng,
    writers: usize,
) -> (Vec<(u64, Followed)>, [usize; 2]) {
    let told = AtomicUsize::new(0);
    let mut readers = Vec::new();
    for target in 0..TARGETS {
        fleet.accept(target, &[7]);
        let all: Vec<_> = fleet.hubs.iter().collect();
        let each = fleet.hubs.iter().map(|hub| vec![hub]);
        for hubs in each.chain([all]) {
            let follower = Follower { hubs, event: target, person: 7, drops_one_in: 60, told: &told };
            let rng = Rng::new(rng.next_u64());
            readers.push(async move { (target, follower.follow(rng).await) });
        }
    }
    let (mut writing, mut breaking) = (Rng::new(rng.next_u64()), Rng::new(rng.next_u64()));
    let pace = if fleet.database.is_some() { SERVERS } else { FILE };
    let work = async {
        let faults = async {
            let landed = faults(fleet, ledger, &told, &mut breaking).await;
            ledger.stop();
            landed
        };
        let (landed, ()) = tokio::join!(faults, write_many(fleet, ledger, &mut writing, writers, pace));
        for target in 0..TARGETS {
            fleet.sql(&rows(&target.to_string(), [LAST]));
        }
        landed
    };
    let (landed, followed) = tokio::join!(work, join_all(readers));
    (followed, landed)
}

async fn every_kept_row_is_told_once_in_one_order(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let name = format!("every_kept_row_is_told_once_in_one_order_on_{}", fleet.name());
    let (ledger, mut rng) = (Arc::new(Ledger::default()), Rng::for_test(&name));
    let writers = if flavour.is_some() { 32 } else { 6 };
    let (followed, landed) = scene(&fleet, &ledger, &mut rng, writers).await;

    let kept = ledger.kept();
    let orders: Vec<Vec<i64>> = (0..TARGETS).map(|target| fleet.order(target)).collect();
    let overtaken = orders.iter().flat_map(|order| order.windows(2)).filter(|pair| pair[0] > pair[1]).count();
    let wrong: Vec<Wrong> =
        followed.iter().map(|(target, told)| Wrong::with(&told.numbers, *target, &kept)).collect();
    let sum =
        |count: &dyn Fn(&Followed) -> usize| followed.iter().map(|(_, told)| count(told)).sum::<usize>();
    let found = |count: &dyn Fn(&Wrong) -> usize| wrong.iter().map(count).sum::<usize>();
    let facts = json!({
        "seed": tier::seed(), "writers": writers, "kills": landed[0], "pauses": landed[1],
        "transactionsKept": ledger.commits(), "transactionsUndone": ledger.undone.load(Ordering::SeqCst),
        "acknowledged": kept.len(), "readers": followed.len(), "delivered": sum(&|told| told.numbers.len()),
        "drops": sum(&|told| told.drops), "streams": sum(&|told| told.streams), "overtaken": overtaken,
        "missing": found(&|wrong| wrong.missing.len()), "repeated": found(&|wrong| wrong.repeated.len()),
        "undoneTold": found(&|wrong| wrong.strange.len()), "disordered": found(&|wrong| wrong.disordered.len()),
    });
    proof::record("outbox", &name, &facts);
    for ((target, told), wrong) in followed.iter().zip(&wrong) {
        assert!(wrong.is_nothing(), "a reader of {target}: {wrong:?}\n{facts}");
        assert_eq!(told.resets, 0, "a reader of {target} was told to begin anew");
        assert_eq!(
            told.ids, orders[*target as usize],
            "a reader of {target} has another order than the table"
        );
    }
    let enough = tier::size(1, 25);
    assert!(landed.iter().all(|landed| *landed >= enough), "too few faults landed: {facts}");
    assert!(sum(&|told| told.drops) >= followed.len(), "hardly anybody dropped: {facts}");
    assert!(flavour.is_none() || overtaken > 20, "hardly an id was overtaken, so this shows little: {facts}");
}

#[tokio::test]
async fn every_kept_row_is_told_once_in_one_order_on_postgres() {
    every_kept_row_is_told_once_in_one_order(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn every_kept_row_is_told_once_in_one_order_on_mariadb() {
    every_kept_row_is_told_once_in_one_order(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn every_kept_row_is_told_once_in_one_order_on_the_embedded_file() {
    every_kept_row_is_told_once_in_one_order(None).await;
}
