//! Reports of people who join and leave: each is one change, announced once.

use super::Adapter;
use super::fixture::{Fixture, LONG_LEASES, ROOM, all_changes, occupants};
use crate::support::{id, ids};

pub(crate) async fn a_person_who_joins_is_present_and_announced_once<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    assert!(fixture.occupants().await.is_empty());
    fixture.report(&["7"], &[]).await;
    assert_eq!(fixture.occupants().await, ["7"]);
    fixture.report(&["10"], &[]).await;
    assert_eq!(fixture.occupants().await, ["7", "10"]);
    assert_eq!(fixture.announcements().await, ["+7 of 7", "+10 of 7 10"]);
}

pub(crate) async fn a_repeated_report_changes_nothing<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    for _ in 0..3 {
        fixture.report(&["7", "7"], &[]).await;
    }
    assert_eq!(fixture.occupants().await, ["7"]);
    assert_eq!(fixture.announcements().await, ["+7 of 7"]);
}

pub(crate) async fn a_person_who_leaves_is_removed_and_announced_once<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fixture.report(&["7", "8"], &[]).await;
    fixture.report(&["9"], &["7"]).await;
    assert_eq!(fixture.occupants().await, ["8", "9"]);
    fixture.report(&[], &["8", "9"]).await;
    assert!(fixture.occupants().await.is_empty());
    fixture.report(&["7"], &[]).await;
    let announced = fixture.announcements().await;
    assert_eq!(announced[2..], ["+9 of 7 8 9", "-7 of 8 9", "-8 of 9", "-9 of", "+7 of 7"]);
}

pub(crate) async fn leaving_twice_or_without_having_joined_changes_nothing<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fixture.report(&[], &["7"]).await;
    fixture.report(&["7"], &[]).await;
    fixture.report(&[], &["7", "7"]).await;
    fixture.report(&[], &["7", "8"]).await;
    assert_eq!(fixture.announcements().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn people_of_one_report_are_announced_one_by_one<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fixture.report(&["1", "2", "3"], &[]).await;
    fixture.report(&[], &["1", "2", "3"]).await;
    let announced = fixture.announcements().await;
    assert_eq!(announced, ["+1 of 1", "+2 of 1 2", "+3 of 1 2 3", "-1 of 2 3", "-2 of 3", "-3 of"]);
}

pub(crate) async fn rooms_are_independent<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    // 24 rooms are enough that every server of a Cluster has some of them.
    let rooms: Vec<String> = (0..24).map(|n| format!("room:{n}")).collect();
    for room in &rooms {
        fixture.store.subscribe(&id(room)).await.unwrap();
        fixture.store.report(&id(room), &ids(&["1", room]), &[]).await.unwrap();
        fixture.store.heartbeat(&id(room), &id("beat")).await.unwrap();
    }
    fixture.report(&["1"], &[]).await;
    fixture.store.report(&id(&rooms[0]), &[], &ids(&["1"])).await.unwrap();
    fixture.store.unsubscribe(&id(&rooms[1]));
    assert_eq!(occupants(&fixture.store, &rooms[0]).await, ["beat", "room:0"]);
    for room in &rooms[1..] {
        assert_eq!(occupants(&fixture.store, room).await, ["1", "beat", room]);
    }
    assert_eq!(fixture.announcements().await, ["+1 of 1"]);
}

pub(crate) async fn every_valid_id_is_stored_and_announced<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    let long = "x".repeat(128);
    let odd = ["-", ".", "0", "007", "-7", "A", "a", "a@b.c", "1:2:3", "_", "9007199254740993", &long];
    for person in odd {
        fixture.report(&[person], &[]).await;
    }
    let mut expected = odd.map(str::to_owned);
    expected.sort_by_key(|person| (person.len(), person.clone()));
    assert_eq!(fixture.occupants().await, expected);
    let announced = fixture.announcements().await;
    assert_eq!(announced[0], "+- of -");
    assert_eq!(announced[odd.len() - 1], format!("+{long} of {}", expected.join(" ")));
    fixture.report(&[], &odd).await;
    assert!(fixture.occupants().await.is_empty());
}

pub(crate) async fn announcements_are_in_order<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    for person in ["1", "2", "3", "1", "2"] {
        fixture.report(&[person], &["1"]).await;
    }
    let before = fixture.store.occupants(&id(ROOM), None, 0).await.unwrap().version;
    fixture.announcements().await;
    let changes = all_changes(&fixture.listener).await;
    assert_eq!(
        changes.last().map(|change| change.version),
        Some(before),
        "the occupants include every change"
    );
    for pair in changes.windows(2) {
        assert!(pair[0].version < pair[1].version && pair[0].at <= pair[1].at);
        assert!(pair[1].previous.is_none_or(|previous| previous == pair[0].version));
    }
}
