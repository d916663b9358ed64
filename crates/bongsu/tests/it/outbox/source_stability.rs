//! The eight cases in which such a stream has to hold out in practice, as the first plan of it listed them: coming back, one
//! instant, clean-up, a right that ends, two instances, heartbeats, many and slow, and a database that goes away.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Item;
use bongsu_testkit::{Rng, tier, wait};
use futures_util::future::join_all;
use serde_json::json;

use super::cleaning::{EVENT, have_cleaned, make_old};
use super::fleet::{Fleet, LONG};
use super::follower::{Follower, LAST, read};
use super::ledger::{Span, Wrong};
use super::slow::silent_readers;
use super::writers::Program;
use super::{follow, numbers, open, rows};

pub(super) async fn coming_back_with_the_last_id_loses_and_repeats_nothing(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let mut rng = Rng::for_test("coming back with the last id");
    let (program, told, all) =
        (Program::start(&fleet).await, AtomicUsize::new(0), fleet.hubs.iter().collect());
    fleet.accept(EVENT, &[7]);
    let event = EVENT.parse().unwrap();
    let follower = Follower { hubs: all, event, person: 7, drops_one_in: 10, told: &told };
    let writing = async {
        for number in (0..300).chain([LAST]) {
            program.insert(EVENT, number).await;
        }
    };
    let ((), followed) = tokio::join!(writing, follower.follow(Rng::new(rng.next_u64())));
    // One after another: each was kept before the next one began.
    let span = |number| (number, Span { target: event, began: 2 * number, kept: 2 * number + 1 });
    let kept: BTreeMap<u64, Span> = (0..300).map(span).collect();
    let wrong = Wrong::with(&followed.numbers, event, &kept);
    assert!(wrong.is_nothing(), "{wrong:?}");
    assert!(followed.drops > 5, "it hardly ever dropped");
}

pub(super) async fn rows_of_one_instant_are_all_told_in_the_order_of_their_ids(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT, &[7]);
    let mut live = open(follow(&fleet.hubs[0], EVENT, 7)).await;
    let row = |number| {
        format!("('proposal.created.v1', '{{\"proposal_id\": {number}}}', '{EVENT}', 1771237800000)")
    };
    let of_one_instant: Vec<String> = (0..250).map(row).collect();
    fleet.sql(&format!(
        "INSERT INTO outbox_events (event_type, payload, target_event_id, created_at) VALUES {}",
        of_one_instant.join(", ")
    ));
    // And others in quick succession.
    let program = Program::start(&fleet).await;
    for number in 250..300 {
        program.insert(EVENT, number).await;
    }
    let told = live.take_events(300, LONG).await;
    assert_eq!(numbers(&told), (0..300).collect::<Vec<_>>());
    assert!(told.iter().take(250).all(|event| event.json()["created_at"] == "2026-02-16T10:30:00.000Z"));
    assert!(told.windows(2).all(|pair| read(&pair[0]).0 < read(&pair[1]).0), "by their ids");
    let mut back = open(follow(&fleet.hubs[0], EVENT, 7).last_event_id(&read(&told[99]).0.to_string())).await;
    assert_eq!(back.take_events(200, LONG).await, told[100..], "who comes back between them");
}

pub(super) async fn clean_up_keeps_the_window_and_what_is_done_can_be_read(flavour: Option<Flavour>) {
    let with = |builder: Builder| builder.env("OUTBOX_RETENTION", "1m").env("OUTBOX_WAITS_FOR", "*");
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    fleet.accept(EVENT, &[7]);
    fleet.sql(&rows(EVENT, 1..=60));
    wait::until(LONG, async || fleet.order(EVENT).len() == 60).await;
    fleet.sql("UPDATE outbox_events SET status = 'DONE' WHERE id <> 5");
    let mut stream = open(follow(&fleet.hubs[0], EVENT, 7).last_event_id("0")).await;
    assert_eq!(numbers(&stream.take_events(60, LONG).await), (1..=60).collect::<Vec<_>>(), "done, and told");
    // Shorter than the window is as long as the window.
    make_old(&fleet, 20);
    let hub = have_cleaned(&fleet).await;
    wait::until(LONG, async || fleet.order(EVENT).len() == 41).await;
    let mut back = open(follow(hub, EVENT, 7).last_event_id(&fleet.order(EVENT)[1].to_string())).await;
    assert_eq!(
        numbers(&back.take_events(39, LONG).await),
        (22..=60).collect::<Vec<_>>(),
        "all of the window"
    );
    let mut late = open(follow(hub, EVENT, 7).last_event_id("0")).await;
    late.expect_event("system.reset", LONG).await;
    let left: Vec<u64> = [5].into_iter().chain(21..=60).collect();
    assert_eq!(numbers(&late.take_events(41, LONG).await), left, "and what is not done");
}

pub(super) async fn a_membership_that_is_withdrawn_hears_nothing_more_and_is_refused(
    flavour: Option<Flavour>,
) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT, &[7, 8]);
    let mut streams = Vec::new();
    for hub in &fleet.hubs {
        streams.push((hub, open(follow(hub, EVENT, 7)).await, open(follow(hub, EVENT, 8)).await));
    }
    fleet.sql(&rows(EVENT, [1]));
    fleet.sql("UPDATE memberships SET status = 'REJECTED' WHERE user_id = '7'");
    fleet.sql(&rows(EVENT, [2]));
    for (hub, mut withdrawn, mut stays) in streams {
        assert_eq!(numbers(&stays.take_events(2, LONG).await), [1, 2]);
        assert_eq!(numbers(&withdrawn.take_events(1, LONG).await), [1]);
        assert_eq!(withdrawn.expect_event("system.close", LONG).await.json()["code"], 3501);
        assert_eq!(withdrawn.next(LONG).await, None, "nothing comes after it");
        follow(hub, EVENT, 7).open().await.err().unwrap().expect_error(403, "COMMON403");
    }
}

pub(super) async fn two_instances_tell_the_same(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT, &[7]);
    let (one, other) = (&fleet.hubs[0], &fleet.hubs[fleet.hubs.len() - 1]);
    let mut streams = [open(follow(one, EVENT, 7)).await, open(follow(other, EVENT, 7)).await];
    let programs = [Program::start(&fleet).await, Program::start(&fleet).await];
    join_all((0..100).map(|number| programs[number as usize % 2].insert(EVENT, number))).await;
    let told = join_all(streams.iter_mut().map(|stream| stream.take_events(100, LONG))).await;
    assert_eq!(told[0], told[1], "the same, in the same order");
    // What one has told, the other one goes on after.
    let last = read(&told[0][49]).0.to_string();
    let mut moved = open(follow(other, EVENT, 7).last_event_id(&last)).await;
    assert_eq!(moved.take_events(50, LONG).await, told[0][50..]);
}

pub(super) async fn a_silent_stream_says_every_so_often_that_it_is_alive(flavour: Option<Flavour>) {
    let seconds = tier::size(1, 30);
    let with = |builder: Builder| builder.env("OUTBOX_PING_SECS", seconds);
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    fleet.accept(EVENT, &[7]);
    let mut stream = open(follow(&fleet.hubs[0], EVENT, 7)).await;
    assert_eq!(stream.next(LONG).await, Some(Item::Retry(5_000)));
    // Whatever gives up on a silent connection after a little more than that, such as a proxy, never does.
    let patience = LONG + Duration::from_secs(3 * seconds as u64);
    for _ in 0..3 {
        assert_eq!(stream.next(patience).await, Some(Item::Comment(" ping".to_owned())));
    }
    fleet.sql(&rows(EVENT, [1]));
    assert_eq!(numbers(&stream.take_events(1, LONG).await), [1]);
}

pub(super) async fn more_than_a_batch_arrives_in_order_and_a_slow_client_costs_little(
    flavour: Option<Flavour>,
) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let (took, may_take, _) = silent_readers(&fleet, 2, 1_000).await;
    assert!(took <= may_take);
    let mut back = open(follow(&fleet.hubs[0], EVENT, 7).last_event_id("0")).await;
    let told = back.take_events(1_001, LONG).await;
    assert_eq!(numbers(&told)[..1_000], (1..=1_000).collect::<Vec<_>>());
}

pub(super) async fn a_database_that_goes_away_is_waited_for_and_clients_know_when_to_return(
    flavour: Option<Flavour>,
) {
    let Some(fleet) = Fleet::start_apart(flavour).await else { return };
    let hub = &fleet.hubs[0];
    fleet.accept(EVENT, &[7]);
    let mut stream = open(follow(hub, EVENT, 7)).await;
    assert_eq!(stream.next(LONG).await, Some(Item::Retry(5_000)), "when to come back");
    fleet.sql(&rows(EVENT, [1]));
    let first = stream.take_events(1, LONG).await;
    match &fleet.database {
        Some(database) => {
            fleet.settle();
            database.kill9().await;
            // An EventSource gives up for good on anything but 200, so it is let in, and asked to come back.
            let mut early = open(follow(hub, EVENT, 7)).await;
            let close = early.expect_event("system.close", LONG).await.json();
            assert_eq!(close["reconnect"], true, "{close}");
            assert!(close["retryMs"].as_u64().is_some(), "{close}");
            assert!(stream.try_next_event(Duration::from_secs(1)).await.is_err(), "no word of it to anybody");
            database.restart().await;
        }
        None => {
            let file = fleet.file();
            file.execute_batch("BEGIN EXCLUSIVE").unwrap();
            assert!(stream.try_next_event(Duration::from_secs(1)).await.is_err(), "no word of it to anybody");
            file.execute_batch("ROLLBACK").unwrap();
        }
    }
    fleet.sql(&rows(EVENT, [2, 3]));
    assert_eq!(numbers(&stream.take_events(2, LONG).await), [2, 3], "it goes on by itself");
    let mut back = open(follow(hub, EVENT, 7).last_event_id(first[0].own_id.as_deref().unwrap())).await;
    assert_eq!(back.next(LONG).await, Some(Item::Retry(5_000)));
    let told = back.take_events(2, LONG).await;
    assert_eq!(told[1].json()["payload"], json!({"proposal_id": 3}), "and so does who comes back");
}
