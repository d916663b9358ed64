//! A membership ends while rows are written: its person receives the rows before the removal in the order of
//! positions and none after it, whichever program removed the membership.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bongsu_sql::Query;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::{Item, Stream};
use bongsu_testkit::{Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::json;
use tokio::time::sleep;

use super::fleet::{FLEET_TIMEOUT, Fleet};
use super::follower::{LAST_NUMBER, row_of};
use super::writers::Program;
use super::{open, stream_request};

const STAYING_MEMBER: u64 = 1;
const LEAVING_MEMBER: u64 = 2;
/// Connects at the moment when the membership ends.
const LATE_MEMBER: u64 = 3;
const ROWS_PER_ROUND: u64 = 15;
/// Rounds that run at the same time.
const PARALLEL_ROUNDS: usize = 5;

static REJECT: Query = Query::new(
    "test_reject",
    ["UPDATE memberships SET status = 'REJECTED' WHERE event_id = :event AND user_id IN ('2', '3')"; 3],
);
static DELETE: Query = Query::new(
    "test_delete",
    ["DELETE FROM memberships WHERE event_id = :event AND user_id IN ('2', '3')"; 3],
);

/// The ids that a person received until the stream was closed for the removed membership.
async fn ids_until_close(mut stream: Stream) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut items = stream.read_to_end(FLEET_TIMEOUT).await;
    let Some(Item::Event(close)) = items.pop() else { panic!("no event at the end") };
    assert_eq!((close.event.as_str(), &close.json()["code"]), ("system.close", &json!(3501)), "{close:?}");
    assert_eq!(close.json()["reconnect"], false, "{close:?}");
    for item in items {
        if let Item::Event(event) = item {
            ids.push(row_of(&event).0);
        }
    }
    ids
}

async fn expect_refused(hub: &Hub, event: &str, person: u64) {
    let answer = stream_request(hub, event, person).open().await.err().expect("a refusal after the removal");
    answer.expect_error(403, "COMMON403");
}

/// The result of one round: how many rows came before the removal, and whether the late member was admitted.
struct RoundOutcome {
    before: usize,
    was_let_in: bool,
}

async fn run_round(fleet: &Fleet, programs: &[Program; 2], number: usize, mut rng: Rng) -> RoundOutcome {
    let event = format!("w{number}");
    fleet.accept(&event, &[STAYING_MEMBER, LEAVING_MEMBER, LATE_MEMBER]);
    let (here, there) =
        (&fleet.hubs[number % fleet.hubs.len()], &fleet.hubs[(number + 1) % fleet.hubs.len()]);
    let mut stays = open(stream_request(there, &event, STAYING_MEMBER)).await;
    let leaves = open(stream_request(here, &event, LEAVING_MEMBER)).await;
    // Measured in rows instead of time, because the time per row depends on the machine.
    let (ends_after, comes_after) = (rng.below(ROWS_PER_ROUND), rng.below(ROWS_PER_ROUND));
    let (pauses, written): (Vec<u64>, _) =
        ((0..ROWS_PER_ROUND).map(|_| rng.below(7)).collect(), AtomicU64::new(0));
    let writing = async {
        for (row, pause) in (1..).zip(pauses) {
            programs[0].insert(&event, row).await;
            written.store(row, Ordering::SeqCst);
            // The program's own pace.
            sleep(Duration::from_millis(pause)).await;
        }
    };
    let so_many_are_written = async |rows: u64| {
        wait::until(FLEET_TIMEOUT, async || written.load(Ordering::SeqCst) >= rows).await;
    };
    let withdrawing = async {
        so_many_are_written(ends_after).await;
        let how = if number.is_multiple_of(2) { &REJECT } else { &DELETE };
        programs[1].run(how, vec![("event", event.as_str().into())]).await;
        // The removal is committed: from here on every hub refuses these persons.
        expect_refused(here, &event, LEAVING_MEMBER).await;
        expect_refused(there, &event, LATE_MEMBER).await;
    };
    let coming = async {
        so_many_are_written(comes_after).await;
        match stream_request(there, &event, LATE_MEMBER).last_event_id("0").open().await {
            Ok(stream) => Some(ids_until_close(stream).await),
            Err(answer) => {
                answer.expect_error(403, "COMMON403");
                None
            }
        }
    };
    let ((), (), came, left) = tokio::join!(writing, withdrawing, coming, ids_until_close(leaves));
    programs[0].insert(&event, LAST_NUMBER).await;
    let mut stayed = Vec::new();
    for _ in 0..=ROWS_PER_ROUND {
        let (id, number) = row_of(&stays.next_event(FLEET_TIMEOUT).await.expect("an open stream"));
        stayed.push(id);
        if number == LAST_NUMBER {
            break;
        }
    }
    let order = fleet.row_order(&event);
    assert_eq!(stayed, order, "rows of the staying member in round {number}");
    assert_eq!(
        left,
        ids_before_removal(fleet, &event, LEAVING_MEMBER),
        "rows of the leaving member in round {number}"
    );
    if let Some(came) = &came {
        assert_eq!(
            *came,
            ids_before_removal(fleet, &event, LATE_MEMBER),
            "rows of the late member in round {number}"
        );
    }
    RoundOutcome { before: left.len(), was_let_in: came.is_some() }
}

/// The ids of the rows whose position is before the removal of this person.
fn ids_before_removal(fleet: &Fleet, event: &str, person: u64) -> Vec<i64> {
    let told = format!(
        "SELECT id FROM outbox_events WHERE target_event_id = '{event}' AND event_type <> 'system.removed' \
         AND position < (SELECT position FROM outbox_events WHERE target_event_id = '{event}' \
             AND event_type = 'system.removed' AND payload LIKE '%\"{person}\"%') ORDER BY position"
    );
    fleet.query(&told).iter().map(|row| row[0].parse().unwrap()).collect()
}

async fn no_row_is_delivered_after_the_membership_ended(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let name = format!("no_row_is_delivered_after_the_membership_ended_on_{}", fleet.name());
    let (rounds, mut rng) = (tier::size(50, 500), Rng::for_test(&name));
    let programs = [Program::start(&fleet).await, Program::start(&fleet).await];
    let mut found: Vec<RoundOutcome> = Vec::new();
    let within = |found: &[RoundOutcome]| {
        found.iter().filter(|round| (1..ROWS_PER_ROUND as usize).contains(&round.before)).count()
    };
    let let_in = |found: &[RoundOutcome]| found.iter().filter(|round| round.was_let_in).count();
    // How often a membership ends while the rows of a round are being written depends on the speed of the machine.
    let came_near = |found: &[RoundOutcome]| {
        within(found) >= rounds / 4 && let_in(found) > 0 && let_in(found) < found.len()
    };
    while found.len() < rounds || (!came_near(&found) && found.len() < rounds * 4) {
        let some = (found.len()..found.len() + PARALLEL_ROUNDS).map(|number| {
            let rng = Rng::new(rng.next_u64());
            run_round(&fleet, &programs, number, rng)
        });
        found.extend(join_all(some.collect::<Vec<_>>()).await);
    }
    let facts = json!({"seed": tier::seed(), "rounds": found.len(), "endedBetweenRows": within(&found),
        "letInBefore": let_in(&found)});
    proof::record("outbox", &name, &facts);
    assert!(came_near(&found), "too few memberships ended between rows or near a late member: {facts}");
}

#[tokio::test]
async fn no_row_is_delivered_after_the_membership_ended_on_postgres() {
    no_row_is_delivered_after_the_membership_ended(Some(Flavour::Postgres)).await;
}

#[tokio::test]
async fn no_row_is_delivered_after_the_membership_ended_on_mariadb() {
    no_row_is_delivered_after_the_membership_ended(Some(Flavour::MariaDb)).await;
}

#[tokio::test]
async fn no_row_is_delivered_after_the_membership_ended_on_the_embedded_file() {
    no_row_is_delivered_after_the_membership_ended(None).await;
}
