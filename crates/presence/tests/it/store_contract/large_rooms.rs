//! Rooms of more than 200 people: announcements list no people, and the changes of one second are batched.

use bongsu_presence::store::MAX_LISTED;
use bongsu_testkit::wait;

use super::Adapter;
use super::fixture::{Fixture, LONG_LEASES, ROOM, describe};
use crate::support::{WAIT_TIMEOUT, id};

/// Reports the people `1` to `count` as present, and waits until all of them are announced.
pub(crate) async fn fill<A: Adapter>(fixture: &Fixture<A>, count: usize) {
    let people: Vec<String> = (1..=count).map(|person| person.to_string()).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    for people in people.chunks(100) {
        fixture.report(people, &[]).await;
    }
    report_until(fixture, |announced| {
        announced.last().is_some_and(|last| last.ends_with(&format!(" {count}")))
    })
    .await;
}

/// Reports no people, as an instance does when a report is due, until the announcements are complete.
#[track_caller]
pub(crate) fn report_until<A: Adapter>(
    fixture: &Fixture<A>,
    is_complete: impl Fn(&[String]) -> bool,
) -> impl Future<Output = Vec<String>> {
    let caller = std::panic::Location::caller();
    async move {
        let announced = wait::value_within(WAIT_TIMEOUT, || async {
            fixture.report(&[], &[]).await;
            let announced: Vec<String> = fixture.listener.changes_in(ROOM).iter().map(describe).collect();
            is_complete(&announced).then_some(announced)
        });
        announced.await.unwrap_or_else(|| panic!("not announced at {caller}"))
    }
}

pub(crate) async fn at_most_two_hundred_people_are_listed<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fill(&fixture, MAX_LISTED).await;
    let changes = fixture.listener.changes_in(ROOM);
    assert_eq!(changes.len(), MAX_LISTED);
    assert!(changes.iter().all(|change| change.online.is_some() && change.joined.is_some()));
    fixture.report(&["one-more"], &[]).await;
    let announced = report_until(&fixture, |announced| announced.len() > MAX_LISTED).await;
    assert_eq!(announced[MAX_LISTED..], ["+one-more of 201"]);
}

pub(crate) async fn changes_of_a_large_room_are_batched<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fill(&fixture, 205).await;
    let before = fixture.listener.changes_in(ROOM).len();
    let outcome = fixture.report(&["a", "b"], &["1"]).await;
    assert!(
        outcome
            .next_report_within
            .is_none_or(|within| within <= bongsu_presence::store::CHANGE_BATCH_INTERVAL)
    );
    fixture.report(&["c"], &["a"]).await;
    assert_eq!(fixture.store.occupants(&id(ROOM), None, 0).await.unwrap().count, 206);
    let announced = report_until(&fixture, |announced| announced.len() > before).await;
    assert_eq!(announced[before..], ["= of 206"]);
    // The batch is over: the next change begins a new one.
    fixture.report(&[], &["b"]).await;
    let announced = report_until(&fixture, |announced| announced.len() > before + 1).await;
    assert_eq!(announced[before + 1..], ["-b of 205"]);
}

pub(crate) async fn a_batch_of_one_change_names_the_person<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fill(&fixture, 202).await;
    let before = fixture.listener.changes_in(ROOM).len();
    fixture.report(&["1", "2", "new"], &[]).await;
    let announced = report_until(&fixture, |announced| announced.len() > before).await;
    assert_eq!(announced[before..], ["+new of 203"]);
    fixture.report(&[], &["new"]).await;
    let announced = report_until(&fixture, |announced| announced.len() > before + 1).await;
    assert_eq!(announced[before + 1..], ["-new of 202"]);
}

pub(crate) async fn a_room_that_shrinks_lists_its_people_again<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fill(&fixture, 202).await;
    let before = fixture.listener.changes_in(ROOM).len();
    fixture.report(&[], &["1", "2"]).await;
    fixture.report(&[], &["3"]).await;
    let announced = report_until(&fixture, |announced| announced.len() > before + 1).await;
    assert!(
        announced[before].starts_with("= of 4 ") || announced[before].starts_with("= of 3 "),
        "{}",
        announced[before]
    );
    assert!(announced[before + 1].starts_with("-3 of 4 5 6"), "{}", announced[before + 1]);
    let changes = fixture.listener.changes_in(ROOM);
    assert_eq!(changes[before..].iter().map(|change| change.count).collect::<Vec<_>>(), [200, 199]);
}

pub(crate) async fn pages_are_in_order_and_count_the_whole_room<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fill(&fixture, 250).await;
    fixture.report(&["ada", "Z"], &["7"]).await;
    let page = async |after: &str, limit: usize| {
        let after = (!after.is_empty()).then(|| id(after));
        let occupants = fixture.store.occupants(&id(ROOM), after.as_ref(), limit).await.unwrap();
        assert_eq!(occupants.count, 251, "of the whole room");
        let listed: Vec<String> = occupants.online.iter().map(|online| online.user.to_string()).collect();
        (listed, occupants.has_more)
    };
    let (mut everybody, mut pages) = (Vec::<String>::new(), 0);
    loop {
        let after = everybody.last().cloned().unwrap_or_default();
        let (listed, has_more) = page(&after, 60).await;
        everybody.extend(listed);
        pages += 1;
        if !has_more {
            break;
        }
    }
    let mut expected: Vec<String> = (1..=250).filter(|n| *n != 7).map(|n| n.to_string()).collect();
    expected.extend(["ada".to_owned(), "Z".to_owned()]);
    expected.sort_by_key(|id| (id.len(), id.clone()));
    assert_eq!((everybody, pages), (expected, 5), "shorter ids first, each once");
    // The last person of a page may have left before the next page is read.
    assert_eq!(page("7", 1).await, (vec!["8".to_owned()], true));
    assert_eq!(page("Z", 1).await, (vec!["10".to_owned()], true));
    assert_eq!(page("ada", 1).await, (vec![], false));
    assert_eq!(page("", 0).await, (vec![], true));
    assert!(!page("", 251).await.1);
    let empty = fixture.store.occupants(&id("nowhere"), None, 5).await.unwrap();
    assert_eq!((empty.count, empty.online, empty.has_more), (0, vec![], false));
}
