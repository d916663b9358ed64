//! Retention removes old rows while readers read them: a reader that misses rows gets `system.reset` or
//! `system.lagged`, and rows that are recent or not processed stay.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::Duration;

use bongsu_kernel::Clock;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::fleet::{FLEET_TIMEOUT, Fleet};
use super::follower::{LAST_NUMBER, row_of};
use super::{open, rows, stream_request};

pub(super) const EVENT_ID: &str = "42";
/// Rows of the test, and how many of them are older than the retention. The bytes of all rows together exceed
/// the kernel's buffers for a reader that does not read.
const ROW_COUNT: u64 = 4_000;
const OLD_ROW_COUNT: u64 = 3_000;
const ROW_TEXT_BYTES: usize = 3_000;
const READER_COUNT: usize = 8;

/// Makes the first `positions` rows appear one minute older than the shortest possible retention of 30 minutes.
pub(super) fn age_positions(fleet: &Fleet, positions: u64) {
    let old = Clock::system().now() - 31 * 60 * 1_000;
    fleet.sql(&format!("INSERT INTO bongsu_outbox_times (position, at) VALUES ({positions}, {old})"));
}

/// Makes a hub run retention now: a hub that takes over the runner does so at once. Returns a hub that was not
/// restarted, or the only hub.
pub(super) async fn run_retention(fleet: &Fleet) -> &Hub {
    let turn = wait::value_within(FLEET_TIMEOUT, || async { fleet.last_acquired("outbox-retention") });
    let (began, at) = turn.await.expect("a hub that removes old rows");
    if fleet.hubs.len() == 1 {
        fleet.hubs[0].restart().await;
        return &fleet.hubs[0];
    }
    fleet.hubs[at].kill9().await;
    // Waits for an acquisition of the runner lock that begins from now on. On a busy machine a lease may end by
    // itself: a hub that held the lock before has run retention already, and runs it again only after its interval.
    let is_next = |turn: (String, usize)| turn.0 > began && turn.1 != at;
    wait::until(FLEET_TIMEOUT, async || fleet.last_acquired("outbox-retention").is_some_and(is_next)).await;
    &fleet.hubs[1 - at]
}

/// The ids and the notices about missing rows that a reader received up to the last row.
struct CleaningTrace {
    ids: Vec<i64>,
    /// For each notice, how many ids came before it.
    gaps: Vec<usize>,
}

async fn read_to_the_last(stream: &mut Stream) -> CleaningTrace {
    let mut page = CleaningTrace { ids: Vec::new(), gaps: Vec::new() };
    let deadline = Instant::now() + FLEET_TIMEOUT * 2;
    loop {
        assert!(Instant::now() < deadline, "the last row did not come after {} other rows", page.ids.len());
        let event = stream.next_event(FLEET_TIMEOUT).await.expect("an open stream");
        if ["system.reset", "system.lagged"].contains(&event.event.as_str()) {
            page.gaps.push(page.ids.len());
            continue;
        }
        let (id, number) = row_of(&event);
        page.ids.push(id);
        if number == LAST_NUMBER {
            return page;
        }
    }
}

/// Checks that a reader received every row after its position in order, except removed rows, which must be preceded
/// by a notice. A reader whose own position was removed gets a notice at once and then all remaining rows.
fn check_trace(page: &CleaningTrace, after: usize, before: &[i64], left: &BTreeSet<i64>) {
    let begins_anew = page.gaps.first() == Some(&0) && before[..after].contains(&page.ids[0]);
    let expected = if begins_anew { before } else { &before[after..] };
    let mut told = page.ids.iter().enumerate().peekable();
    for id in expected {
        if told.next_if(|(_, told)| *told == id).is_some() {
            continue;
        }
        assert!(!left.contains(id), "row {id} exists and was not sent");
        let at = told.peek().map_or(page.ids.len(), |(at, _)| *at);
        assert!(page.gaps.iter().any(|mark| *mark <= at), "row {id} was skipped without a notice");
    }
    assert!(told.next().is_none(), "a row was sent twice or out of order");
}

async fn cleanup_resets_streams_with_removed_positions(flavour: Option<Flavour>) {
    let with = |builder: bongsu_testkit::hub::Builder| {
        builder.env("OUTBOX_RETENTION", "30m").env("OUTBOX_WAITS_FOR", "worked.on.v1")
    };
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    let name = format!("cleanup_resets_streams_with_removed_positions_on_{}", fleet.name());
    let mut rng = Rng::for_test(&name);
    fleet.accept(EVENT_ID, &[7]);
    fleet.write_large(EVENT_ID, 1..=ROW_COUNT, ROW_TEXT_BYTES).await;
    fleet.sql(&rows(EVENT_ID, [LAST_NUMBER]));
    wait::until(FLEET_TIMEOUT, async || fleet.row_order(EVENT_ID).len() as u64 == ROW_COUNT + 1).await;
    let before = fleet.row_order(EVENT_ID);
    let middle = Mutex::new(Vec::new());
    if fleet.hubs.len() > 1 {
        for hub in &fleet.hubs {
            let request = stream_request(hub, EVENT_ID, 7).last_event_id("0").receive_buffer(4_096);
            let mut stream = open(request).await;
            let first: Vec<i64> =
                stream.take_events(20, FLEET_TIMEOUT).await.iter().map(|event| row_of(event).0).collect();
            middle.lock().unwrap().push((hub.port(), first, stream.stop_reading()));
        }
    }
    age_positions(&fleet, OLD_ROW_COUNT);
    let hub = run_retention(&fleet).await;
    let kept = (ROW_COUNT + 1 - OLD_ROW_COUNT + OLD_ROW_COUNT / 20) as usize;
    let left_now = || {
        let count = fleet.query("SELECT COUNT(*) FROM outbox_events")[0][0].clone();
        count.parse::<usize>().unwrap()
    };
    // Some readers connect while retention is running.
    let readers = (0..READER_COUNT).map(|reader| {
        let (after, pause) =
            (rng.below(OLD_ROW_COUNT) as usize, Duration::from_millis(rng.below(80) * reader as u64));
        let last = before[after].to_string();
        async move {
            // The moment at which a reader connects.
            sleep(pause).await;
            let mut stream = open(stream_request(hub, EVENT_ID, 7).last_event_id(&last)).await;
            (after + 1, read_to_the_last(&mut stream).await)
        }
    });
    let pages = join_all(readers.collect::<Vec<_>>()).await;
    wait::until(FLEET_TIMEOUT, async || left_now() == kept).await;
    let left: BTreeSet<i64> = fleet.row_order(EVENT_ID).into_iter().collect();
    let (removed, rows) = (before.iter().filter(|id| !left.contains(id)).count(), before.len());
    let young = before[OLD_ROW_COUNT as usize..].iter().filter(|id| !left.contains(id)).count();
    assert_eq!(young, 0, "rows within the retention were removed");
    for (after, page) in &pages {
        check_trace(page, *after, &before, &left);
    }
    let mut cut = 0;
    for (port, first, held) in middle.into_inner().unwrap() {
        // The hub of the other reader was killed so that another hub takes over retention.
        if port != hub.port() {
            continue;
        }
        let mut page = read_to_the_last(&mut held.resume()).await;
        assert_eq!(first, before[..20], "rows read before retention");
        page.ids.splice(0..0, first);
        page.gaps.iter_mut().for_each(|mark| *mark += 20);
        check_trace(&page, 0, &before, &left);
        cut += page.gaps.len();
    }
    // A reader that connects after retention gets a reset at once.
    let mut late = open(stream_request(hub, EVENT_ID, 7).last_event_id(&before[0].to_string())).await;
    late.expect_event("system.reset", FLEET_TIMEOUT).await;
    let page = read_to_the_last(&mut late).await;
    assert_eq!(page.ids, left.into_iter().collect::<Vec<_>>(), "all remaining rows");
    let marked = pages.iter().filter(|(_, page)| !page.gaps.is_empty()).count();
    let facts = json!({"seed": tier::seed(), "rows": rows, "removed": removed, "readers": pages.len(),
        "toldOfAHole": marked, "toldInTheMiddle": cut});
    proof::record("outbox", &name, &facts);
    assert!(flavour.is_none() || cut > 0, "no open stream lost rows: {facts}");
}

#[tokio::test]
async fn cleanup_resets_streams_with_removed_positions_on_postgres() {
    cleanup_resets_streams_with_removed_positions(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn cleanup_resets_streams_with_removed_positions_on_mariadb() {
    cleanup_resets_streams_with_removed_positions(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn cleanup_resets_streams_with_removed_positions_on_the_embedded_file() {
    cleanup_resets_streams_with_removed_positions(None).await;
}
