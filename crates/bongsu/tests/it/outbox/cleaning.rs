//! Old rows are removed while people read them: whoever misses something is told so, and what is young or not dealt with stays.

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

use super::fleet::{Fleet, LONG};
use super::follower::{LAST, read};
use super::{follow, open, rows};

pub(super) const EVENT: &str = "42";
/// Rows, and how many of them are older than the window. Too many bytes to be on their way to somebody who does not read.
const ROWS: u64 = 4_000;
const OLD: u64 = 3_000;
const BYTES: usize = 3_000;
const READERS: usize = 8;

/// Makes as if so many rows had had their positions for a little longer than the shortest time that rows are kept.
pub(super) fn make_old(fleet: &Fleet, positions: u64) {
    let old = Clock::system().now() - 31 * 60 * 1_000;
    fleet.sql(&format!("INSERT INTO bongsu_outbox_times (position, at) VALUES ({positions}, {old})"));
}

/// Has old rows removed now: whoever begins to look after that does it at once. Gives a hub that was not disturbed, if
/// there is one.
pub(super) async fn have_cleaned(fleet: &Fleet) -> &Hub {
    let turn = wait::value_within(LONG, || async { fleet.last_turn("outbox-retention") });
    let (began, at) = turn.await.expect("a hub that removes old rows");
    if fleet.hubs.len() == 1 {
        fleet.hubs[0].restart().await;
        return &fleet.hubs[0];
    }
    fleet.hubs[at].kill9().await;
    // A turn that begins from now on. On a busy machine a lease may end by itself: a hub that had its turn before has
    // looked already, and looks again only after a while.
    let is_next = |turn: (String, usize)| turn.0 > began && turn.1 != at;
    wait::until(LONG, async || fleet.last_turn("outbox-retention").is_some_and(is_next)).await;
    &fleet.hubs[1 - at]
}

/// What somebody was told to the end: the ids, and how often it was said that something is missing.
struct Page {
    ids: Vec<i64>,
    /// Before so many ids were told.
    marks: Vec<usize>,
}

async fn read_to_the_last(stream: &mut Stream) -> Page {
    let mut page = Page { ids: Vec::new(), marks: Vec::new() };
    let deadline = Instant::now() + LONG * 2;
    loop {
        assert!(Instant::now() < deadline, "the last row did not come after {} others", page.ids.len());
        let event = stream.next_event(LONG).await.expect("a stream that goes on");
        if ["system.reset", "system.lagged"].contains(&event.event.as_str()) {
            page.marks.push(page.ids.len());
            continue;
        }
        let (id, number) = read(&event);
        page.ids.push(id);
        if number == LAST {
            return page;
        }
    }
}

/// Everything after a place in order, but for what is gone, and that only after it was said that something is. Whose own
/// place is gone is told so at once, and then all that is left.
fn check(page: &Page, after: usize, before: &[i64], left: &BTreeSet<i64>) {
    let begins_anew = page.marks.first() == Some(&0) && before[..after].contains(&page.ids[0]);
    let expected = if begins_anew { before } else { &before[after..] };
    let mut told = page.ids.iter().enumerate().peekable();
    for id in expected {
        if told.next_if(|(_, told)| *told == id).is_some() {
            continue;
        }
        assert!(!left.contains(id), "{id} is there, and was not told");
        let at = told.peek().map_or(page.ids.len(), |(at, _)| *at);
        assert!(page.marks.iter().any(|mark| *mark <= at), "{id} was left out, and nobody said so");
    }
    assert!(told.next().is_none(), "told twice, or out of order");
}

async fn cleaning_is_told_to_those_who_read(flavour: Option<Flavour>) {
    let with = |builder: bongsu_testkit::hub::Builder| {
        builder.env("OUTBOX_RETENTION", "30m").env("OUTBOX_WAITS_FOR", "worked.on.v1")
    };
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    let name = format!("cleaning_is_told_to_those_who_read_on_{}", fleet.name());
    let mut rng = Rng::for_test(&name);
    fleet.accept(EVENT, &[7]);
    fleet.write_large(EVENT, 1..=ROWS, BYTES).await;
    fleet.sql(&rows(EVENT, [LAST]));
    wait::until(LONG, async || fleet.order(EVENT).len() as u64 == ROWS + 1).await;
    let before = fleet.order(EVENT);
    let middle = Mutex::new(Vec::new());
    if fleet.hubs.len() > 1 {
        for hub in &fleet.hubs {
            let request = follow(hub, EVENT, 7).last_event_id("0").receive_buffer(4_096);
            let mut stream = open(request).await;
            let first: Vec<i64> =
                stream.take_events(20, LONG).await.iter().map(|event| read(event).0).collect();
            middle.lock().unwrap().push((hub.port(), first, stream.stop_reading()));
        }
    }
    make_old(&fleet, OLD);
    let hub = have_cleaned(&fleet).await;
    let kept = (ROWS + 1 - OLD + OLD / 20) as usize;
    let left_now = || {
        let count = fleet.ask("SELECT COUNT(*) FROM outbox_events")[0][0].clone();
        count.parse::<usize>().unwrap()
    };
    // Some come while it is under way.
    let readers = (0..READERS).map(|reader| {
        let (after, pause) = (rng.below(OLD) as usize, Duration::from_millis(rng.below(80) * reader as u64));
        let last = before[after].to_string();
        async move {
            // When a reader comes.
            sleep(pause).await;
            let mut stream = open(follow(hub, EVENT, 7).last_event_id(&last)).await;
            (after + 1, read_to_the_last(&mut stream).await)
        }
    });
    let pages = join_all(readers.collect::<Vec<_>>()).await;
    wait::until(LONG, async || left_now() == kept).await;
    let left: BTreeSet<i64> = fleet.order(EVENT).into_iter().collect();
    let (removed, rows) = (before.iter().filter(|id| !left.contains(id)).count(), before.len());
    let young = before[OLD as usize..].iter().filter(|id| !left.contains(id)).count();
    assert_eq!(young, 0, "rows are gone that are younger than the window");
    for (after, page) in &pages {
        check(page, *after, &before, &left);
    }
    let mut cut = 0;
    for (port, first, held) in middle.into_inner().unwrap() {
        // The other one's hub was ended to have another one clean.
        if port != hub.port() {
            continue;
        }
        let mut page = read_to_the_last(&mut held.resume()).await;
        assert_eq!(first, before[..20], "before anything was removed");
        page.ids.splice(0..0, first);
        page.marks.iter_mut().for_each(|mark| *mark += 20);
        check(&page, 0, &before, &left);
        cut += page.marks.len();
    }
    // And who comes when it is over is told at once.
    let mut late = open(follow(hub, EVENT, 7).last_event_id(&before[0].to_string())).await;
    late.expect_event("system.reset", LONG).await;
    let page = read_to_the_last(&mut late).await;
    assert_eq!(page.ids, left.into_iter().collect::<Vec<_>>(), "all that is left");
    let marked = pages.iter().filter(|(_, page)| !page.marks.is_empty()).count();
    let facts = json!({"seed": tier::seed(), "rows": rows, "removed": removed, "readers": pages.len(),
        "toldOfAHole": marked, "toldInTheMiddle": cut});
    proof::record("outbox", &name, &facts);
    assert!(flavour.is_none() || cut > 0, "nobody was in the middle: {facts}");
}

#[tokio::test]
async fn cleaning_is_told_to_those_who_read_on_postgres() {
    cleaning_is_told_to_those_who_read(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn cleaning_is_told_to_those_who_read_on_mariadb() {
    cleaning_is_told_to_those_who_read(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn cleaning_is_told_to_those_who_read_on_the_embedded_file() {
    cleaning_is_told_to_those_who_read(None).await;
}
