//! The eight cases that the original project's stability plan lists: resuming, rows of one instant, retention,
//! removed memberships, two instances, heartbeats, many rows with a slow client, and a database outage.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::sse::Item;
use bongsu_testkit::{Rng, tier, wait};
use futures_util::future::join_all;
use serde_json::json;

use super::cleaning::{EVENT_ID, age_positions, run_retention};
use super::fleet::{FLEET_TIMEOUT, Fleet};
use super::follower::{LAST_NUMBER, StreamReader, row_of};
use super::ledger::{RowSpan, Violations};
use super::slow::silent_readers;
use super::writers::Program;
use super::{numbers, open, rows, stream_request};

pub(super) async fn resuming_with_the_last_id_loses_and_repeats_no_row(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let mut rng = Rng::for_test("coming back with the last id");
    let (program, told, all) =
        (Program::start(&fleet).await, AtomicUsize::new(0), fleet.hubs.iter().collect());
    fleet.accept(EVENT_ID, &[7]);
    let event = EVENT_ID.parse().unwrap();
    let reader = StreamReader { hubs: all, event, person: 7, one_drop_in: 10, told: &told };
    let writing = async {
        for number in (0..300).chain([LAST_NUMBER]) {
            program.insert(EVENT_ID, number).await;
        }
    };
    let ((), followed) = tokio::join!(writing, reader.read(Rng::new(rng.next_u64())));
    // The rows were inserted one after another: each was committed before the next insert began.
    let span = |number| (number, RowSpan { target: event, began: 2 * number, kept: 2 * number + 1 });
    let kept: BTreeMap<u64, RowSpan> = (0..300).map(span).collect();
    let wrong = Violations::find(&followed.numbers, event, &kept);
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(followed.drops > 5, "the reader disconnected too rarely");
}

pub(super) async fn rows_with_equal_times_are_delivered_in_the_order_of_their_ids(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT_ID, &[7]);
    let mut live = open(stream_request(&fleet.hubs[0], EVENT_ID, 7)).await;
    let row = |number| {
        format!("('proposal.created.v1', '{{\"proposal_id\": {number}}}', '{EVENT_ID}', 1771237800000)")
    };
    let of_one_instant: Vec<String> = (0..250).map(row).collect();
    fleet.sql(&format!(
        "INSERT INTO outbox_events (event_type, payload, target_event_id, created_at) VALUES {}",
        of_one_instant.join(", ")
    ));
    // More rows follow in quick succession.
    let program = Program::start(&fleet).await;
    for number in 250..300 {
        program.insert(EVENT_ID, number).await;
    }
    let told = live.take_events(300, FLEET_TIMEOUT).await;
    assert_eq!(numbers(&told), (0..300).collect::<Vec<_>>());
    assert!(told.iter().take(250).all(|event| event.json()["created_at"] == "2026-02-16T10:30:00.000Z"));
    assert!(
        told.windows(2).all(|pair| row_of(&pair[0]).0 < row_of(&pair[1]).0),
        "the rows are not in the order of their ids"
    );
    let mut back =
        open(stream_request(&fleet.hubs[0], EVENT_ID, 7).last_event_id(&row_of(&told[99]).0.to_string()))
            .await;
    assert_eq!(back.take_events(200, FLEET_TIMEOUT).await, told[100..], "rows after a position in between");
}

pub(super) async fn cleanup_keeps_the_retention_window_and_finished_rows_stay_readable(
    flavour: Option<Flavour>,
) {
    let with = |builder: Builder| builder.env("OUTBOX_RETENTION", "1m").env("OUTBOX_WAITS_FOR", "*");
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    fleet.accept(EVENT_ID, &[7]);
    fleet.sql(&rows(EVENT_ID, 1..=60));
    wait::until(FLEET_TIMEOUT, async || fleet.row_order(EVENT_ID).len() == 60).await;
    fleet.sql("UPDATE outbox_events SET status = 'DONE' WHERE id <> 5");
    let mut stream = open(stream_request(&fleet.hubs[0], EVENT_ID, 7).last_event_id("0")).await;
    assert_eq!(
        numbers(&stream.take_events(60, FLEET_TIMEOUT).await),
        (1..=60).collect::<Vec<_>>(),
        "finished rows must be sent"
    );
    // A retention shorter than the minimum counts as the minimum.
    age_positions(&fleet, 20);
    let hub = run_retention(&fleet).await;
    wait::until(FLEET_TIMEOUT, async || fleet.row_order(EVENT_ID).len() == 41).await;
    let mut back =
        open(stream_request(hub, EVENT_ID, 7).last_event_id(&fleet.row_order(EVENT_ID)[1].to_string())).await;
    assert_eq!(
        numbers(&back.take_events(39, FLEET_TIMEOUT).await),
        (22..=60).collect::<Vec<_>>(),
        "rows within the retention"
    );
    let mut late = open(stream_request(hub, EVENT_ID, 7).last_event_id("0")).await;
    late.expect_event("system.reset", FLEET_TIMEOUT).await;
    let left: Vec<u64> = [5].into_iter().chain(21..=60).collect();
    assert_eq!(
        numbers(&late.take_events(41, FLEET_TIMEOUT).await),
        left,
        "the row that is not done must stay"
    );
}

pub(super) async fn a_withdrawn_member_receives_nothing_more_and_is_refused(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT_ID, &[7, 8]);
    let mut streams = Vec::new();
    for hub in &fleet.hubs {
        streams.push((
            hub,
            open(stream_request(hub, EVENT_ID, 7)).await,
            open(stream_request(hub, EVENT_ID, 8)).await,
        ));
    }
    fleet.sql(&rows(EVENT_ID, [1]));
    fleet.sql("UPDATE memberships SET status = 'REJECTED' WHERE user_id = '7'");
    fleet.sql(&rows(EVENT_ID, [2]));
    for (hub, mut withdrawn, mut stays) in streams {
        assert_eq!(numbers(&stays.take_events(2, FLEET_TIMEOUT).await), [1, 2]);
        assert_eq!(numbers(&withdrawn.take_events(1, FLEET_TIMEOUT).await), [1]);
        assert_eq!(withdrawn.expect_event("system.close", FLEET_TIMEOUT).await.json()["code"], 3501);
        assert_eq!(withdrawn.next(FLEET_TIMEOUT).await, None, "the stream must end");
        stream_request(hub, EVENT_ID, 7).open().await.err().unwrap().expect_error(403, "COMMON403");
    }
}

pub(super) async fn two_instances_deliver_the_same_rows(flavour: Option<Flavour>) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    fleet.accept(EVENT_ID, &[7]);
    let (one, other) = (&fleet.hubs[0], &fleet.hubs[fleet.hubs.len() - 1]);
    let mut streams =
        [open(stream_request(one, EVENT_ID, 7)).await, open(stream_request(other, EVENT_ID, 7)).await];
    let programs = [Program::start(&fleet).await, Program::start(&fleet).await];
    join_all((0..100).map(|number| programs[number as usize % 2].insert(EVENT_ID, number))).await;
    let told = join_all(streams.iter_mut().map(|stream| stream.take_events(100, FLEET_TIMEOUT))).await;
    assert_eq!(told[0], told[1], "the two streams differ");
    // A client resumes on the other hub after a row that the first hub sent.
    let last = row_of(&told[0][49]).0.to_string();
    let mut moved = open(stream_request(other, EVENT_ID, 7).last_event_id(&last)).await;
    assert_eq!(moved.take_events(50, FLEET_TIMEOUT).await, told[0][50..]);
}

pub(super) async fn an_idle_stream_sends_keepalives(flavour: Option<Flavour>) {
    let seconds = tier::size(1, 30);
    let with = |builder: Builder| builder.env("OUTBOX_PING_SECS", seconds);
    let Some(fleet) = Fleet::start_with(flavour, None, with).await else { return };
    fleet.accept(EVENT_ID, &[7]);
    let mut stream = open(stream_request(&fleet.hubs[0], EVENT_ID, 7)).await;
    assert_eq!(stream.next(FLEET_TIMEOUT).await, Some(Item::Retry(5_000)));
    // A proxy that closes a connection after slightly more silence than the ping interval would never close this
    // stream.
    let patience = FLEET_TIMEOUT + Duration::from_secs(3 * seconds as u64);
    for _ in 0..3 {
        assert_eq!(stream.next(patience).await, Some(Item::Comment(" ping".to_owned())));
    }
    fleet.sql(&rows(EVENT_ID, [1]));
    assert_eq!(numbers(&stream.take_events(1, FLEET_TIMEOUT).await), [1]);
}

pub(super) async fn more_than_a_batch_arrives_in_order_and_a_slow_client_costs_little(
    flavour: Option<Flavour>,
) {
    let Some(fleet) = Fleet::start(flavour).await else { return };
    let (took, may_take, _) = silent_readers(&fleet, 2, 1_000).await;
    assert!(took <= may_take);
    let mut back = open(stream_request(&fleet.hubs[0], EVENT_ID, 7).last_event_id("0")).await;
    let told = back.take_events(1_001, FLEET_TIMEOUT).await;
    assert_eq!(numbers(&told)[..1_000], (1..=1_000).collect::<Vec<_>>());
}

pub(super) async fn streams_continue_after_a_database_outage_and_clients_get_a_retry_delay(
    flavour: Option<Flavour>,
) {
    let Some(fleet) = Fleet::start_on_own_server(flavour).await else { return };
    let hub = &fleet.hubs[0];
    fleet.accept(EVENT_ID, &[7]);
    let mut stream = open(stream_request(hub, EVENT_ID, 7)).await;
    assert_eq!(stream.next(FLEET_TIMEOUT).await, Some(Item::Retry(5_000)), "the retry delay");
    fleet.sql(&rows(EVENT_ID, [1]));
    let first = stream.take_events(1, FLEET_TIMEOUT).await;
    match &fleet.database {
        Some(database) => {
            fleet.flush_commits();
            database.kill9().await;
            // An EventSource gives up for good on any status but 200, so the hub opens the stream and asks it to
            // reconnect.
            let mut early = open(stream_request(hub, EVENT_ID, 7)).await;
            let close = early.expect_event("system.close", FLEET_TIMEOUT).await.json();
            assert_eq!(close["reconnect"], true, "{close}");
            assert!(close["retryMs"].as_u64().is_some(), "{close}");
            assert!(
                stream.try_next_event(Duration::from_secs(1)).await.is_err(),
                "the stream must stay silent"
            );
            database.restart().await;
        }
        None => {
            let file = fleet.file();
            file.execute_batch("BEGIN EXCLUSIVE").unwrap();
            assert!(
                stream.try_next_event(Duration::from_secs(1)).await.is_err(),
                "the stream must stay silent"
            );
            file.execute_batch("ROLLBACK").unwrap();
        }
    }
    fleet.sql(&rows(EVENT_ID, [2, 3]));
    assert_eq!(numbers(&stream.take_events(2, FLEET_TIMEOUT).await), [2, 3], "the stream must continue");
    let mut back =
        open(stream_request(hub, EVENT_ID, 7).last_event_id(first[0].own_id.as_deref().unwrap())).await;
    assert_eq!(back.next(FLEET_TIMEOUT).await, Some(Item::Retry(5_000)));
    let told = back.take_events(2, FLEET_TIMEOUT).await;
    assert_eq!(told[1].json()["payload"], json!({"proposal_id": 3}), "a resumed stream must get the rows");
}
