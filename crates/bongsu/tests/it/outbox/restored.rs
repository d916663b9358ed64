//! The database is restored from an older copy. Whoever was told something that the copy does not have is told so, and then all
//! that there is now, also when what is new has the ids and positions of what was lost.

use std::time::Duration;

use bongsu_testkit::hub::Signal;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Hub, wait};
use tokio::time::{Instant, sleep};

use super::fleet::{Fleet, LONG};
use super::follower::{LAST, read};
use super::{follow, open, rows};

const EVENT: &str = "42";

/// What somebody was told, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Row(i64, u64),
    Reset,
}

/// Follows from the beginning, comes back after every ending, until the last row or until nothing has come for as long as
/// anything may take.
async fn watch(hub: &Hub, told: &std::sync::Mutex<Vec<Told>>) {
    let (mut last, mut until) = ("0".to_owned(), Instant::now() + LONG);
    while Instant::now() < until {
        let Ok(Ok(mut stream)) = follow(hub, EVENT, 7).last_event_id(&last).try_open().await else {
            // A client's pause before it comes back.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        while let Ok(Some(event)) = stream.try_next_event(until - Instant::now()).await {
            let item = match event.event.as_str() {
                "system.reset" => Told::Reset,
                "system.close" => {
                    assert_eq!(event.json()["reconnect"], true, "{event:?}");
                    break;
                }
                _ => {
                    let (id, number) = read(&event);
                    Told::Row(id, number)
                }
            };
            told.lock().unwrap().push(item);
            if matches!(item, Told::Row(_, LAST)) {
                return;
            }
            until = Instant::now() + LONG;
        }
        // As the stream said, and as a browser does it.
        stream.last_event_id().clone_into(&mut last);
    }
}

fn count(told: &std::sync::Mutex<Vec<Told>>, what: impl Fn(&Told) -> bool) -> usize {
    told.lock().unwrap().iter().filter(|told| what(told)).count()
}

fn rows_in(told: &std::sync::Mutex<Vec<Told>>) -> usize {
    count(told, |told| matches!(told, Told::Row(..)))
}

fn resets_in(told: &std::sync::Mutex<Vec<Told>>) -> usize {
    count(told, |told| *told == Told::Reset)
}

/// What is told: forty rows, then a reset before anything else, and after the last one all rows that there are.
fn check(fleet: &Fleet, told: &[Told]) {
    let first: Vec<u64> = told.iter().map_while(number).collect();
    assert_eq!(first, (1..=40).collect::<Vec<_>>(), "and then a reset: {told:?}");
    let after = told.iter().rposition(|told| *told == Told::Reset).expect("a reset");
    let ids: Vec<i64> =
        told[after + 1..].iter().map(|told| if let Told::Row(id, _) = told { *id } else { 0 }).collect();
    assert_eq!(ids, fleet.order(EVENT), "all that there is, after the reset: {told:?}");
}

fn number(told: &Told) -> Option<u64> {
    match told {
        Told::Row(_, number) => Some(*number),
        Told::Reset => None,
    }
}

/// Somebody was away meanwhile, and comes back with an id that another row has now: a reset, and then all that there is.
async fn comes_back_late(fleet: &Fleet, lost: i64) {
    let order = fleet.order(EVENT);
    for hub in &fleet.hubs {
        let deadline = Instant::now() + LONG;
        let mut back = loop {
            assert!(Instant::now() < deadline, "nobody who comes back is told of the reset");
            let mut back = open(follow(hub, EVENT, 7).last_event_id(&lost.to_string())).await;
            match back.next_event(LONG).await.expect("an event") {
                event if event.event == "system.reset" => break back,
                // Connections of before the restart are still found to be of no use.
                event => assert_eq!(event.json()["code"], 3003, "{event:?}"),
            }
        };
        let told = back.take_events(order.len(), LONG).await;
        assert_eq!(told.iter().map(|event| read(event).0).collect::<Vec<_>>(), order);
    }
}

/// Twenty rows that the copy has, and twenty that it does not have.
async fn told_of_a_restored_database(flavour: Flavour, reused: bool) {
    let Some(fleet) = Fleet::start_apart(Some(flavour)).await else { return };
    let database = fleet.database.as_ref().unwrap();
    fleet.accept(EVENT, &[7]);
    let told = [const { std::sync::Mutex::new(Vec::new()) }; 2];
    let work = async {
        fleet.sql(&rows(EVENT, 1..=20));
        wait::until(LONG, async || told.iter().all(|told| rows_in(told) == 20)).await;
        fleet.settle();
        let copy = database.copy().await;
        next_id_is_21(&fleet);
        fleet.sql(&rows(EVENT, 21..=40));
        wait::until(LONG, async || told.iter().all(|told| rows_in(told) == 40)).await;
        if reused {
            restore_and_use_again(&fleet, &copy).await;
        } else {
            database.restore(&copy).await;
        }
        // Nothing else has to happen for it.
        wait::until(LONG, async || told.iter().all(|told| resets_in(told) > 0)).await;
        fleet.sql(&rows(EVENT, [1_000, LAST]));
    };
    let [one, other] = [0, 1].map(|at| watch(&fleet.hubs[at], &told[at]));
    tokio::join!(work, one, other);
    let told = told.map(|told| told.into_inner().unwrap());
    for told in &told {
        check(&fleet, told);
    }
    let Told::Row(lost, 21) = told[0][20] else { panic!("{:?}", told[0]) };
    if reused {
        assert!(fleet.order(EVENT).contains(&lost), "the id is not used again, so this shows less");
    }
    comes_back_late(&fleet, lost).await;
}

/// PostgreSQL leaves some out after a crash, but not in a dump that is restored.
fn next_id_is_21(fleet: &Fleet) {
    if fleet.name() == "postgres" {
        fleet.sql("SELECT setval(pg_get_serial_sequence('outbox_events', 'id'), 20)");
    }
}

/// Thirty other rows have the ids of those that were lost, and positions, before anybody can have noticed.
async fn restore_and_use_again(fleet: &Fleet, copy: &tempfile::TempDir) {
    let database = fleet.database.as_ref().unwrap();
    let first = fleet.sequencer().expect("one gives positions");
    fleet.hubs.iter().for_each(|hub| hub.send_signal(Signal::STOP));
    database.restore(copy).await;
    next_id_is_21(fleet);
    fleet.sql(&rows(EVENT, 101..=130));
    assert_eq!(fleet.ask("SELECT MAX(id) FROM outbox_events")[0][0], "50", "ids are used again");
    fleet.hubs[first].send_signal(Signal::CONT);
    let given = "SELECT position FROM bongsu_outbox_head";
    wait::until(LONG, async || fleet.ask(given)[0][0] == "50").await;
    fleet.hubs.iter().for_each(|hub| hub.send_signal(Signal::CONT));
}

#[tokio::test]
async fn a_restored_postgres_is_told_to_everybody_who_was_beyond_it() {
    told_of_a_restored_database(Flavour::Postgres, false).await;
}

#[tokio::test]
async fn a_restored_mariadb_is_told_to_everybody_who_was_beyond_it() {
    told_of_a_restored_database(Flavour::MariaDb, false).await;
}

#[tokio::test]
async fn ids_of_a_restored_postgres_that_are_used_again_hide_nothing_from_anybody() {
    told_of_a_restored_database(Flavour::Postgres, true).await;
}

#[tokio::test]
async fn ids_of_a_restored_mariadb_that_are_used_again_hide_nothing_from_anybody() {
    told_of_a_restored_database(Flavour::MariaDb, true).await;
}

#[tokio::test]
async fn a_restored_file_is_told_to_everybody_who_was_beyond_it() {
    let fleet = Fleet::start(None).await.unwrap();
    let hub = &fleet.hubs[0];
    fleet.accept(EVENT, &[7]);
    fleet.sql(&rows(EVENT, 1..=20));
    let mut early = open(follow(hub, EVENT, 7).last_event_id("0")).await;
    let within = early.take_events(20, LONG).await;
    assert!(hub.terminate().await.success());
    let (file, copy) = (hub.data_dir().join("bongsu.db"), hub.data_dir().join("copy.db"));
    // Ended in order it left everything in the one file.
    std::fs::copy(&file, &copy).unwrap();
    hub.restart().await;
    fleet.sql(&rows(EVENT, 21..=40));
    let mut late = open(follow(hub, EVENT, 7).last_event_id("0")).await;
    let beyond = late.take_events(40, LONG).await;
    assert!(hub.terminate().await.success());
    std::fs::copy(&copy, &file).unwrap();
    hub.restart().await;
    let back = async |last: &str| open(follow(hub, EVENT, 7).last_event_id(last)).await;
    let mut late = back(beyond[39].own_id.as_deref().unwrap()).await;
    late.expect_event("system.reset", LONG).await;
    let mut told: Vec<u64> = late.take_events(20, LONG).await.iter().map(|event| read(event).1).collect();
    let mut early = back(within[19].own_id.as_deref().unwrap()).await;
    // They have the ids of those that were lost.
    fleet.sql(&rows(EVENT, 101..=130));
    told.extend(late.take_events(30, LONG).await.iter().map(|event| read(event).1));
    assert_eq!(told, (1..=20).chain(101..=130).collect::<Vec<_>>());
    let new = early.take_events(30, LONG).await;
    assert_eq!(new.iter().map(|event| read(event).1).collect::<Vec<_>>(), (101..=130).collect::<Vec<_>>());
    assert_eq!(read(&new[0]).0, read(&beyond[20]).0, "the ids are not used again, so this shows less");
}
