//! Several instances on one store: a person counts once, and the people of an instance that stops reporting leave once.

use std::cell::Cell;
use std::time::Duration;

use bongsu_presence::store::MAX_LISTED;
use bongsu_testkit::wait;

use super::Adapter;
use super::fixture::{Fixture, LONG_LEASES, ROOM, SHORT_LEASES, all_changes, describe, report};
use super::large_rooms::{fill, report_until};
use crate::support::{WAIT_TIMEOUT, id};

pub(crate) async fn a_person_on_two_instances_leaves_with_the_last<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(LONG_LEASES).await else { return };
    let (other, _) = one.another_instance(LONG_LEASES).await;
    one.report(&["7"], &[]).await;
    report(&other, &["7"], &[]).await;
    one.report(&[], &["7"]).await;
    assert_eq!(one.occupants().await, ["7"]);
    one.heartbeat("7").await;
    report(&other, &[], &["7"]).await;
    assert!(one.occupants().await.is_empty());
    assert_eq!(one.announcements().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn every_instance_receives_the_same_announcements<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(LONG_LEASES).await else { return };
    let (other, listener) = one.another_instance(LONG_LEASES).await;
    let mine = async {
        for person in ["1", "2", "3", "4", "5"] {
            one.report(&[person, "both"], &[]).await;
            one.report(&[], &[person, "both"]).await;
        }
    };
    let others = async {
        for person in ["6", "7", "8", "9"] {
            report(&other, &[person, "both"], &[]).await;
            report(&other, &[], &[person, "both"]).await;
        }
    };
    tokio::join!(mine, others);
    let announced = one.announcements().await;
    assert_eq!(all_changes(&listener).await.iter().map(describe).collect::<Vec<_>>(), announced);
    assert_eq!(
        announced
            .iter()
            .filter(|announced| announced.starts_with("+") && !announced.starts_with("+both"))
            .count(),
        9
    );
    let both = announced.iter().filter(|announced| announced[1..].starts_with("both"));
    let both: Vec<&str> = both.map(|announced| &announced[..1]).collect();
    assert!(both.chunks(2).all(|pair| pair == ["+", "-"]), "{announced:?}");
}

pub(crate) async fn people_of_a_silent_instance_leave_once<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    let (other, listener) = one.another_instance(SHORT_LEASES).await;
    let (silent, _) = one.another_instance(SHORT_LEASES).await;
    report(&silent, &["1", "2", "3"], &[]).await;
    // The remaining instances report at the same time, repeatedly.
    wait::until(WAIT_TIMEOUT, async || {
        tokio::join!(one.report(&["a", "3"], &[]), report(&other, &["b"], &[]), one.report(&[], &[]));
        one.occupants().await == ["3", "a", "b"]
    })
    .await;
    tokio::join!(one.report(&["a", "3"], &[]), report(&other, &["b"], &[]), report(&other, &[], &[]));
    let announced = one.announcements().await;
    assert_eq!(all_changes(&listener).await.iter().map(describe).collect::<Vec<_>>(), announced);
    for person in ["1", "2"] {
        let left = announced.iter().filter(|announced| announced.starts_with(&format!("-{person} "))).count();
        assert_eq!(left, 1, "{announced:?}");
    }
    assert!(!announced.iter().any(|announced| announced.starts_with("-3")), "{announced:?}");
}

pub(crate) async fn many_expired_people_leave_in_batches<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    let (silent, _) = one.another_instance(SHORT_LEASES).await;
    let people: Vec<String> = (0..150).map(|person| person.to_string()).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    report(&silent, &people, &[]).await;
    let (remaining, batches) = (Cell::new(people.len()), Cell::new(0));
    wait::until(WAIT_TIMEOUT, async || {
        let outcome = one.report(&[], &[]).await;
        if outcome.count < remaining.get() {
            assert!(
                remaining.get() - outcome.count <= 50,
                "{} leave at once",
                remaining.get() - outcome.count
            );
            assert!(
                outcome.count == 0 || outcome.next_report_within == Some(Duration::ZERO),
                "more people are to be removed"
            );
            batches.set(batches.get() + 1);
        }
        remaining.set(outcome.count);
        outcome.count == 0
    })
    .await;
    assert!(batches.get() >= 3, "{} batches", batches.get());
    let announced = one.announcements().await;
    assert_eq!(announced.iter().filter(|announced| announced.starts_with('-')).count(), 150);
    assert_eq!(announced.len(), 300);
}

pub(crate) async fn an_abandoned_lease_expires_although_another_was_renewed<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    let (silent, _) = one.another_instance(SHORT_LEASES).await;
    let (watching, _) = one.another_instance(SHORT_LEASES).await;
    report(&silent, &["7"], &[]).await;
    let next_report = async || report(&watching, &[], &[]).await.next_report_within.unwrap();
    wait::until(WAIT_TIMEOUT, async || next_report().await < SHORT_LEASES.user_ttl * 3 / 4).await;
    let within = one.report(&["7"], &[]).await.next_report_within.unwrap();
    assert!(
        within < SHORT_LEASES.user_ttl * 3 / 4,
        "the next report is due when the first lease ends, not the newest"
    );
    one.report(&[], &["7"]).await;
    assert_eq!(one.occupants().await, ["7"]);
    assert!(next_report().await <= within);
    wait::until(WAIT_TIMEOUT, async || {
        report(&watching, &[], &[]).await;
        one.listener.changes_in(ROOM).iter().map(describe).collect::<Vec<_>>() == ["+7 of 7", "-7 of"]
    })
    .await;
    assert_eq!(report(&watching, &[], &[]).await.next_report_within, None);
}

pub(crate) async fn a_heartbeat_outlives_a_silent_instance<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    let (silent, _) = one.another_instance(SHORT_LEASES).await;
    report(&silent, &["7", "8"], &[]).await;
    wait::until(WAIT_TIMEOUT, async || {
        one.heartbeat("7").await;
        one.report(&["a"], &[]).await;
        one.occupants().await == ["7", "a"]
    })
    .await;
    let announced = one.announcements().await;
    assert!(announced.contains(&"-8 of 7 a".to_owned()), "{announced:?}");
    assert!(!announced.iter().any(|announced| announced.starts_with("-7")), "{announced:?}");
}

pub(crate) async fn every_instance_is_asked_to_report_a_large_room_that_changes<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(LONG_LEASES).await else { return };
    let (other, listener) = one.another_instance(LONG_LEASES).await;
    fill(&one, MAX_LISTED + 2).await;
    let (received, requests) = (one.listener.changes_in(ROOM).len(), one.listener.report_requests());
    // The heartbeats arrive at an instance that may have no streams in the room, and then never reports it.
    other.heartbeat(&id(ROOM), &id("beat")).await.unwrap();
    other.heartbeat(&id(ROOM), &id("another")).await.unwrap();
    wait::until(WAIT_TIMEOUT, async || {
        one.listener.report_requests() == requests + 1 && listener.report_requests() == requests + 1
    })
    .await;
    let announced = report_until(&one, |announced| announced.len() > received).await;
    assert_eq!(announced[received..], ["= of 204"]);
}

pub(crate) async fn renewals_keep_people_present<A: Adapter>() {
    let Some(one) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    let (other, _) = one.another_instance(SHORT_LEASES).await;
    assert!(one.store.renewal_interval().unwrap() <= SHORT_LEASES.user_ttl / 3);
    one.heartbeat("clock").await;
    one.report(&["1", "2"], &[]).await;
    wait::until(WAIT_TIMEOUT, async || {
        one.report(&["1", "2"], &[]).await;
        report(&other, &["2", "3"], &[]).await;
        one.occupants().await == ["1", "2", "3"]
    })
    .await;
    let announced = one.announcements().await;
    assert_eq!(announced.iter().filter(|announced| announced.starts_with('-')).count(), 1, "{announced:?}");
}
