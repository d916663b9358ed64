//! Ids say nothing about commit order: with transactions of all lengths, readers that reconnect, and a sequencer hub
//! that is killed and paused, every reader receives every committed row once, in one order in which a row comes after
//! all rows that were visible before its insert.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bongsu_testkit::hub::Signal;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;

use super::fleet::{FLEET_TIMEOUT, Fleet};
use super::follower::{LAST_NUMBER, ReaderTrace, StreamReader};
use super::ledger::{Ledger, Violations};
use super::rows;
use super::writers::{Pace, run_writers};

pub(super) const TARGETS: u64 = 4;
pub(super) const SERVER_PACE: Pace = Pace { within: 60, long_one_in: 25, between: 250, targets: TARGETS };
/// SQLite allows one writer at a time, and the hub needs to write as well.
const FILE_PACE: Pace = Pace { within: 30, long_one_in: 60, between: 300, targets: TARGETS };

/// How many kills, and how many pauses, must hit open transactions.
fn required_faults() -> usize {
    tier::size(1, 25)
}

/// Kills and pauses the hub with the sequencer until enough faults hit open transactions; readers must
/// receive new rows after each. Returns how many kills and how many pauses hit open transactions.
async fn faults(fleet: &Fleet, ledger: &Ledger, told: &AtomicUsize, rng: &mut Rng) -> [usize; 2] {
    let (rounds, mut landed) = (tier::size(4, 60), [0, 0]);
    for round in 0..3 * rounds {
        if round >= rounds && landed.iter().all(|landed| *landed >= required_faults()) {
            break;
        }
        let enough = ledger.commits() + rng.range(20..100) as usize;
        wait::until(FLEET_TIMEOUT, async || ledger.commits() >= enough).await;
        wait::until(FLEET_TIMEOUT, async || fleet.sequencer().is_some()).await;
        let Some(at) = fleet.sequencer() else { continue };
        let (hub, alone) = (&fleet.hubs[at], fleet.hubs.len() == 1);
        let under_way = || ledger.in_flight.load(Ordering::SeqCst) > 0;
        wait::until(FLEET_TIMEOUT, async || under_way()).await;
        if round % 2 == 0 {
            hub.kill9().await;
            landed[0] += usize::from(under_way());
            if !alone && rng.chance(1, 2) {
                fleet.wait_for_takeover(at).await;
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
                wait::until(FLEET_TIMEOUT, async || ledger.commits() > commits + 20).await;
            } else {
                // The pause is longer than the lease: another hub takes over.
                fleet.wait_for_takeover(at).await;
            }
            hub.send_signal(Signal::CONT);
        }
        let before = told.load(Ordering::SeqCst);
        wait::until(FLEET_TIMEOUT, async || told.load(Ordering::SeqCst) > before + 100).await;
    }
    landed
}

/// A hub that is stopped within a transaction keeps SQLite's write lock, so no writer can commit. Resumes such a hub
/// and stops it again until the writers can commit.
async fn ensure_stopped_without_lock(hub: &Hub, ledger: &Ledger) {
    let deadline = Instant::now() + FLEET_TIMEOUT;
    loop {
        let commits = ledger.commits();
        // One commit may have been on its way back when the hub was stopped.
        if wait::holds_within(Duration::from_secs(5), async || ledger.commits() > commits + 1).await {
            return;
        }
        assert!(Instant::now() < deadline, "no writer commits while the hub is stopped");
        hub.send_signal(Signal::CONT);
        wait::until(FLEET_TIMEOUT, async || ledger.commits() > commits + 1).await;
        hub.send_signal(Signal::STOP);
    }
}

/// Runs writers, faults and readers; returns the traces of the readers with their targets, and the faults that
/// landed. Every target has several readers: some stay with one hub, some use any hub.
async fn run_scenario(
    fleet: &Fleet,
    ledger: &Arc<Ledger>,
    rng: &mut Rng,
    writers: usize,
) -> (Vec<(u64, ReaderTrace)>, [usize; 2]) {
    let told = AtomicUsize::new(0);
    let mut readers = Vec::new();
    for target in 0..TARGETS {
        fleet.accept(target, &[7]);
        let all: Vec<_> = fleet.hubs.iter().collect();
        let each = fleet.hubs.iter().map(|hub| vec![hub]);
        for hubs in each.chain([all]) {
            let reader = StreamReader { hubs, event: target, person: 7, one_drop_in: 60, told: &told };
            let rng = Rng::new(rng.next_u64());
            readers.push(async move { (target, reader.read(rng).await) });
        }
    }
    let (mut writing, mut breaking) = (Rng::new(rng.next_u64()), Rng::new(rng.next_u64()));
    let pace = if fleet.database.is_some() { SERVER_PACE } else { FILE_PACE };
    let work = async {
        let faults = async {
            let landed = faults(fleet, ledger, &told, &mut breaking).await;
            ledger.stop();
            landed
        };
        let (landed, ()) = tokio::join!(faults, run_writers(fleet, ledger, &mut writing, writers, pace));
        for target in 0..TARGETS {
            fleet.sql(&rows(&target.to_string(), [LAST_NUMBER]));
        }
        landed
    };
    let (landed, followed) = tokio::join!(work, join_all(readers));
    (followed, landed)
}

async fn every_stored_row_is_delivered_once_in_one_order(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let name = format!("every_stored_row_is_delivered_once_in_one_order_on_{}", fleet.name());
    let (ledger, mut rng) = (Arc::new(Ledger::default()), Rng::for_test(&name));
    let writers = if flavour.is_some() { 32 } else { 6 };
    let (followed, landed) = run_scenario(&fleet, &ledger, &mut rng, writers).await;

    let kept = ledger.kept();
    let orders: Vec<Vec<i64>> = (0..TARGETS).map(|target| fleet.row_order(target)).collect();
    let overtaken = orders.iter().flat_map(|order| order.windows(2)).filter(|pair| pair[0] > pair[1]).count();
    let wrong: Vec<Violations> =
        followed.iter().map(|(target, told)| Violations::find(&told.numbers, *target, &kept)).collect();
    let sum =
        |count: &dyn Fn(&ReaderTrace) -> usize| followed.iter().map(|(_, told)| count(told)).sum::<usize>();
    let found = |count: &dyn Fn(&Violations) -> usize| wrong.iter().map(count).sum::<usize>();
    let facts = json!({
        "seed": tier::seed(), "writers": writers, "kills": landed[0], "pauses": landed[1],
        "transactionsKept": ledger.commits(), "transactionsUndone": ledger.undone.load(Ordering::SeqCst),
        "acknowledged": kept.len(), "readers": followed.len(), "delivered": sum(&|told| told.numbers.len()),
        "drops": sum(&|told| told.drops), "streams": sum(&|told| told.streams), "overtaken": overtaken,
        "missing": found(&|wrong| wrong.missing.len()), "repeated": found(&|wrong| wrong.repeated.len()),
        "undoneTold": found(&|wrong| wrong.unexpected.len()), "disordered": found(&|wrong| wrong.disordered.len()),
    });
    proof::record("outbox", &name, &facts);
    for ((target, told), wrong) in followed.iter().zip(&wrong) {
        assert!(wrong.is_empty(), "a reader of {target}: {wrong:?}\n{facts}");
        assert_eq!(told.resets, 0, "a reader of {target} was reset");
        assert_eq!(
            told.ids, orders[*target as usize],
            "a reader of {target} has another order than the table"
        );
    }
    assert!(landed.iter().all(|landed| *landed >= required_faults()), "too few faults landed: {facts}");
    assert!(sum(&|told| told.drops) >= followed.len(), "too few readers disconnected: {facts}");
    assert!(flavour.is_none() || overtaken > 20, "too few ids were overtaken: {facts}");
}

#[tokio::test]
async fn every_stored_row_is_delivered_once_in_one_order_on_postgres() {
    every_stored_row_is_delivered_once_in_one_order(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn every_stored_row_is_delivered_once_in_one_order_on_mariadb() {
    every_stored_row_is_delivered_once_in_one_order(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn every_stored_row_is_delivered_once_in_one_order_on_the_embedded_file() {
    every_stored_row_is_delivered_once_in_one_order(None).await;
}
