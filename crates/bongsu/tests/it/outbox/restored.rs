//! The database is restored from an older copy. A reader that received rows that the copy does not have gets a reset
//! and then all current rows, even if new rows reuse the ids and positions of the lost ones.

use std::time::Duration;

use bongsu_testkit::hub::Signal;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Hub, wait};
use tokio::time::{Instant, sleep};

use super::fleet::{FLEET_TIMEOUT, Fleet};
use super::follower::{LAST_NUMBER, row_of};
use super::{open, rows, stream_request};

const EVENT_ID: &str = "42";

/// One item that a reader received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceivedItem {
    Row(i64, u64),
    Reset,
}

/// Reads from the beginning and reconnects after every end, until the last row or until no event arrives
/// within the timeout.
async fn read_until_last(hub: &Hub, told: &std::sync::Mutex<Vec<ReceivedItem>>) {
    let (mut last, mut until) = ("0".to_owned(), Instant::now() + FLEET_TIMEOUT);
    while Instant::now() < until {
        let Ok(Ok(mut stream)) = stream_request(hub, EVENT_ID, 7).last_event_id(&last).try_open().await
        else {
            // A client's pause before it reconnects.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while let Ok(Some(event)) = stream.try_next_event(until - Instant::now()).await {
            let item = match event.event.as_str() {
                "system.reset" => ReceivedItem::Reset,
                "system.close" => {
                    assert_eq!(event.json()["reconnect"], true, "{event:?}");
                    break;
                }
                _ => {
                    let (id, number) = row_of(&event);
                    ReceivedItem::Row(id, number)
                }
            };
            told.lock().unwrap().push(item);
            if matches!(item, ReceivedItem::Row(_, LAST_NUMBER)) {
                return;
            }
            until = Instant::now() + FLEET_TIMEOUT;
        }
        // Resumes with the last id of the stream, as a browser does.
        stream.last_event_id().clone_into(&mut last);
    }
}

fn count(told: &std::sync::Mutex<Vec<ReceivedItem>>, what: impl Fn(&ReceivedItem) -> bool) -> usize {
    told.lock().unwrap().iter().filter(|told| what(told)).count()
}

fn rows_in(told: &std::sync::Mutex<Vec<ReceivedItem>>) -> usize {
    count(told, |told| matches!(told, ReceivedItem::Row(..)))
}

fn resets_in(told: &std::sync::Mutex<Vec<ReceivedItem>>) -> usize {
    count(told, |told| *told == ReceivedItem::Reset)
}

/// Checks the order: forty rows, then a reset before anything else, and after the last reset all rows of the table.
fn check_items(fleet: &Fleet, told: &[ReceivedItem]) {
    let first: Vec<u64> = told.iter().map_while(number).collect();
    assert_eq!(first, (1..=40).collect::<Vec<_>>(), "rows before the reset: {told:?}");
    let after = told.iter().rposition(|told| *told == ReceivedItem::Reset).expect("a reset");
    let ids: Vec<i64> = told[after + 1..]
        .iter()
        .map(|told| if let ReceivedItem::Row(id, _) = told { *id } else { 0 })
        .collect();
    assert_eq!(ids, fleet.row_order(EVENT_ID), "rows after the last reset: {told:?}");
}

fn number(told: &ReceivedItem) -> Option<u64> {
    match told {
        ReceivedItem::Row(_, number) => Some(*number),
        ReceivedItem::Reset => None,
    }
}

/// Resumes with an id that another row has now: expects a reset, and then all rows.
async fn expect_reset_on_resume(fleet: &Fleet, lost: i64) {
    let order = fleet.row_order(EVENT_ID);
    for hub in &fleet.hubs {
        let deadline = Instant::now() + FLEET_TIMEOUT;
        let mut back = loop {
            assert!(Instant::now() < deadline, "a client that resumes gets no reset");
            let mut back = open(stream_request(hub, EVENT_ID, 7).last_event_id(&lost.to_string())).await;
            match back.next_event(FLEET_TIMEOUT).await.expect("an event") {
                event if event.event == "system.reset" => break back,
                // Database connections from before the restart may still be found broken.
                event => assert_eq!(event.json()["code"], 3003, "{event:?}"),
            }
        };
        let told = back.take_events(order.len(), FLEET_TIMEOUT).await;
        assert_eq!(told.iter().map(|event| row_of(event).0).collect::<Vec<_>>(), order);
    }
}

/// Restores a copy that has twenty of forty rows, and checks that every reader is reset.
async fn expect_reset_after_restore(flavour: Flavour, reused: bool) {
    let Some(fleet) = Fleet::start_on_own_server(Some(flavour)).await else { return };
    let database = fleet.database.as_ref().unwrap();
    fleet.accept(EVENT_ID, &[7]);
    let told = [const { std::sync::Mutex::new(Vec::new()) }; 2];
    let work = async {
        fleet.sql(&rows(EVENT_ID, 1..=20));
        wait::until(FLEET_TIMEOUT, async || told.iter().all(|told| rows_in(told) == 20)).await;
        fleet.flush_commits();
        let copy = database.copy().await;
        next_id_is_21(&fleet);
        fleet.sql(&rows(EVENT_ID, 21..=40));
        wait::until(FLEET_TIMEOUT, async || told.iter().all(|told| rows_in(told) == 40)).await;
        if reused {
            restore_and_reuse_ids(&fleet, &copy).await;
        } else {
            database.restore(&copy).await;
        }
        // The reset needs no other event to trigger it.
        wait::until(FLEET_TIMEOUT, async || told.iter().all(|told| resets_in(told) > 0)).await;
        fleet.sql(&rows(EVENT_ID, [1_000, LAST_NUMBER]));
    };
    let [one, other] = [0, 1].map(|at| read_until_last(&fleet.hubs[at], &told[at]));
    tokio::join!(work, one, other);
    let told = told.map(|told| told.into_inner().unwrap());
    for told in &told {
        check_items(&fleet, told);
    }
    let ReceivedItem::Row(lost, 21) = told[0][20] else { panic!("{:?}", told[0]) };
    if reused {
        assert!(fleet.row_order(EVENT_ID).contains(&lost), "no row reuses the id of a lost one");
    }
    expect_reset_on_resume(&fleet, lost).await;
}

/// PostgreSQL skips some ids after a crash, but not after restoring a dump.
fn next_id_is_21(fleet: &Fleet) {
    if fleet.name() == "postgres" {
        fleet.sql("SELECT setval(pg_get_serial_sequence('outbox_events', 'id'), 20)");
    }
}

/// Restores the copy while all hubs are paused, so that thirty other rows get the ids and positions of the lost ones
/// before any hub can notice.
async fn restore_and_reuse_ids(fleet: &Fleet, copy: &tempfile::TempDir) {
    let database = fleet.database.as_ref().unwrap();
    let first = fleet.sequencer().expect("a sequencer");
    fleet.hubs.iter().for_each(|hub| hub.send_signal(Signal::STOP));
    database.restore(copy).await;
    next_id_is_21(fleet);
    fleet.sql(&rows(EVENT_ID, 101..=130));
    assert_eq!(fleet.query("SELECT MAX(id) FROM outbox_events")[0][0], "50", "the new rows must reuse ids");
    fleet.hubs[first].send_signal(Signal::CONT);
    let given = "SELECT position FROM bongsu_outbox_head";
    wait::until(FLEET_TIMEOUT, async || fleet.query(given)[0][0] == "50").await;
    fleet.hubs.iter().for_each(|hub| hub.send_signal(Signal::CONT));
}

#[tokio::test]
async fn streams_with_positions_beyond_a_restored_postgres_are_reset() {
    expect_reset_after_restore(Flavour::Postgres, false).await;
}

#[tokio::test]
async fn streams_with_positions_beyond_a_restored_mariadb_are_reset() {
    expect_reset_after_restore(Flavour::MariaDb, false).await;
}

#[tokio::test]
async fn reused_ids_of_a_restored_postgres_hide_no_row_from_a_stream() {
    expect_reset_after_restore(Flavour::Postgres, true).await;
}

#[tokio::test]
async fn reused_ids_of_a_restored_mariadb_hide_no_row_from_a_stream() {
    expect_reset_after_restore(Flavour::MariaDb, true).await;
}

#[tokio::test]
async fn streams_with_positions_beyond_a_restored_file_are_reset() {
    let fleet = Fleet::start(None).await.unwrap();
    let hub = &fleet.hubs[0];
    fleet.accept(EVENT_ID, &[7]);
    fleet.sql(&rows(EVENT_ID, 1..=20));
    let mut early = open(stream_request(hub, EVENT_ID, 7).last_event_id("0")).await;
    let within = early.take_events(20, FLEET_TIMEOUT).await;
    assert!(hub.terminate().await.success());
    let (file, copy) = (hub.data_dir().join("bongsu.db"), hub.data_dir().join("copy.db"));
    // After a clean stop everything is in this one file.
    std::fs::copy(&file, &copy).unwrap();
    hub.restart().await;
    fleet.sql(&rows(EVENT_ID, 21..=40));
    let mut late = open(stream_request(hub, EVENT_ID, 7).last_event_id("0")).await;
    let beyond = late.take_events(40, FLEET_TIMEOUT).await;
    assert!(hub.terminate().await.success());
    std::fs::copy(&copy, &file).unwrap();
    hub.restart().await;
    let back = async |last: &str| open(stream_request(hub, EVENT_ID, 7).last_event_id(last)).await;
    let mut late = back(beyond[39].own_id.as_deref().unwrap()).await;
    late.expect_event("system.reset", FLEET_TIMEOUT).await;
    let mut told: Vec<u64> =
        late.take_events(20, FLEET_TIMEOUT).await.iter().map(|event| row_of(event).1).collect();
    let mut early = back(within[19].own_id.as_deref().unwrap()).await;
    // These rows have the ids of the lost ones.
    fleet.sql(&rows(EVENT_ID, 101..=130));
    told.extend(late.take_events(30, FLEET_TIMEOUT).await.iter().map(|event| row_of(event).1));
    assert_eq!(told, (1..=20).chain(101..=130).collect::<Vec<_>>());
    let new = early.take_events(30, FLEET_TIMEOUT).await;
    assert_eq!(new.iter().map(|event| row_of(event).1).collect::<Vec<_>>(), (101..=130).collect::<Vec<_>>());
    assert_eq!(row_of(&new[0]).0, row_of(&beyond[20]).0, "the new rows do not reuse the ids of lost ones");
}
