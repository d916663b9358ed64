//! A right that ends while rows are written: whoever had it is told what comes before its place in the order, and nothing
//! behind it, whichever program ended it and however.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bongsu_sql::Query;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Item, Stream};
use bongsu_testkit::{Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use super::fleet::{Fleet, LONG};
use super::follower::{LAST, read};
use super::writers::Program;
use super::{follow, open};

const STAYS: u64 = 1;
const LEAVES: u64 = 2;
/// Comes at the moment when the right ends.
const COMES: u64 = 3;
const ROWS: u64 = 15;
/// So many rounds at the same time.
const AT_ONCE: usize = 5;

static REJECT: Query = Query::new(
    "test_reject",
    ["UPDATE memberships SET status = 'REJECTED' WHERE event_id = :event AND user_id IN ('2', '3')"; 3],
);
static DELETE: Query = Query::new(
    "test_delete",
    ["DELETE FROM memberships WHERE event_id = :event AND user_id IN ('2', '3')"; 3],
);

/// What somebody was told until their right ended.
async fn told_to_the_end(mut stream: Stream) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut items = stream.read_to_end(LONG).await;
    let Some(Item::Event(close)) = items.pop() else { panic!("nothing at the end") };
    assert_eq!((close.event.as_str(), &close.json()["code"]), ("system.close", &json!(3501)), "{close:?}");
    assert_eq!(close.json()["reconnect"], false, "{close:?}");
    for item in items {
        if let Item::Event(event) = item {
            ids.push(read(&event).0);
        }
    }
    ids
}

async fn is_refused(hub: &Hub, event: &str, person: u64) {
    let answer = follow(hub, event, person).open().await.err().expect("no stream after the right has ended");
    answer.expect_error(403, "COMMON403");
}

/// What one round found: how many rows came before the right ended, and whether the late one was let in.
struct Round {
    before: usize,
    was_let_in: bool,
}

async fn round(fleet: &Fleet, programs: &[Program; 2], number: usize, mut rng: Rng) -> Round {
    let event = format!("w{number}");
    fleet.accept(&event, &[STAYS, LEAVES, COMES]);
    let (here, there) =
        (&fleet.hubs[number % fleet.hubs.len()], &fleet.hubs[(number + 1) % fleet.hubs.len()]);
    let mut stays = open(follow(there, &event, STAYS)).await;
    let leaves = open(follow(here, &event, LEAVES)).await;
    // Counted in rows, and not in time: how long a row takes depends on the machine.
    let (ends_after, comes_after) = (rng.below(ROWS), rng.below(ROWS));
    let (pauses, written): (Vec<u64>, _) = ((0..ROWS).map(|_| rng.below(7)).collect(), AtomicU64::new(0));
    let writing = async {
        for (row, pause) in (1..).zip(pauses) {
            programs[0].insert(&event, row).await;
            written.store(row, Ordering::SeqCst);
            // The program's own pace.
            sleep(Duration::from_millis(pause)).await;
        }
    };
    let so_many_are_written = async |rows: u64| {
        wait::until(LONG, async || written.load(Ordering::SeqCst) >= rows).await;
    };
    let withdrawing = async {
        so_many_are_written(ends_after).await;
        let how = if number.is_multiple_of(2) { &REJECT } else { &DELETE };
        programs[1].run(how, vec![("event", event.as_str().into())]).await;
        // Committed: from here on nobody is let in, wherever they ask.
        is_refused(here, &event, LEAVES).await;
        is_refused(there, &event, COMES).await;
    };
    let coming = async {
        so_many_are_written(comes_after).await;
        match follow(there, &event, COMES).last_event_id("0").open().await {
            Ok(stream) => Some(told_to_the_end(stream).await),
            Err(answer) => {
                answer.expect_error(403, "COMMON403");
                None
            }
        }
    };
    let ((), (), came, left) = tokio::join!(writing, withdrawing, coming, told_to_the_end(leaves));
    programs[0].insert(&event, LAST).await;
    let mut stayed = Vec::new();
    for _ in 0..=ROWS {
        let (id, number) = read(&stays.next_event(LONG).await.expect("a stream that goes on"));
        stayed.push(id);
        if number == LAST {
            break;
        }
    }
    let order = fleet.order(&event);
    assert_eq!(stayed, order, "who stays is told everything, in round {number}");
    assert_eq!(left, up_to_the_end_of(fleet, &event, LEAVES), "who left, in round {number}");
    if let Some(came) = &came {
        assert_eq!(*came, up_to_the_end_of(fleet, &event, COMES), "who came late, in round {number}");
    }
    Round { before: left.len(), was_let_in: came.is_some() }
}

/// The rows with positions before the one where a right ended.
fn up_to_the_end_of(fleet: &Fleet, event: &str, person: u64) -> Vec<i64> {
    let told = format!(
        "SELECT id FROM outbox_events WHERE target_event_id = '{event}' AND event_type <> 'system.removed' \
         AND position < (SELECT position FROM outbox_events WHERE target_event_id = '{event}' \
             AND event_type = 'system.removed' AND payload LIKE '%\"{person}\"%') ORDER BY position"
    );
    fleet.ask(&told).iter().map(|row| row[0].parse().unwrap()).collect()
}

async fn nothing_is_told_behind_the_end_of_a_right(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let name = format!("nothing_is_told_behind_the_end_of_a_right_on_{}", fleet.name());
    let (rounds, mut rng) = (tier::size(50, 500), Rng::for_test(&name));
    let programs = [Program::start(&fleet).await, Program::start(&fleet).await];
    let mut found: Vec<Round> = Vec::new();
    let within =
        |found: &[Round]| found.iter().filter(|round| (1..ROWS as usize).contains(&round.before)).count();
    let let_in = |found: &[Round]| found.iter().filter(|round| round.was_let_in).count();
    // How near they come to the moment itself depends on the machine.
    let came_near =
        |found: &[Round]| within(found) >= rounds / 4 && let_in(found) > 0 && let_in(found) < found.len();
    while found.len() < rounds || (!came_near(&found) && found.len() < rounds * 4) {
        let some = (found.len()..found.len() + AT_ONCE).map(|number| {
            let rng = Rng::new(rng.next_u64());
            round(&fleet, &programs, number, rng)
        });
        found.extend(join_all(some.collect::<Vec<_>>()).await);
    }
    let facts = json!({"seed": tier::seed(), "rounds": found.len(), "endedBetweenRows": within(&found),
        "letInBefore": let_in(&found)});
    proof::record("outbox", &name, &facts);
    assert!(came_near(&found), "too few rights ended while rows were written or somebody came: {facts}");
}

#[tokio::test]
async fn nothing_is_told_behind_the_end_of_a_right_on_postgres() {
    nothing_is_told_behind_the_end_of_a_right(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn nothing_is_told_behind_the_end_of_a_right_on_mariadb() {
    nothing_is_told_behind_the_end_of_a_right(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn nothing_is_told_behind_the_end_of_a_right_on_the_embedded_file() {
    nothing_is_told_behind_the_end_of_a_right(None).await;
}
