//! Several hubs on one store: everybody is counted once, and those of a hub that says nothing more leave once.

use std::cell::Cell;
use std::time::Duration;

use bongsu_presence::store::MOST_LISTED;
use bongsu_testkit::wait;

use super::Adapter;
use super::large::{fill, look_until};
use super::stage::{LONG, ROOM, SHORT, Stage, heard_all, tell, words};
use crate::support::{PATIENCE, id};

pub(crate) async fn a_person_on_two_hubs_leaves_with_the_last<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(LONG).await else { return };
    let (other, _) = one.another(LONG).await;
    one.tell(&["7"], &[]).await;
    tell(&other, &["7"], &[]).await;
    one.tell(&[], &["7"]).await;
    assert_eq!(one.who().await, ["7"]);
    one.beat("7").await;
    tell(&other, &[], &["7"]).await;
    assert!(one.who().await.is_empty());
    assert_eq!(one.announced().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn every_hub_hears_the_same<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(LONG).await else { return };
    let (other, ears) = one.another(LONG).await;
    let mine = async {
        for person in ["1", "2", "3", "4", "5"] {
            one.tell(&[person, "both"], &[]).await;
            one.tell(&[], &[person, "both"]).await;
        }
    };
    let others = async {
        for person in ["6", "7", "8", "9"] {
            tell(&other, &[person, "both"], &[]).await;
            tell(&other, &[], &[person, "both"]).await;
        }
    };
    tokio::join!(mine, others);
    let said = one.announced().await;
    assert_eq!(heard_all(&ears).await.iter().map(words).collect::<Vec<_>>(), said);
    assert_eq!(said.iter().filter(|said| said.starts_with("+") && !said.starts_with("+both")).count(), 9);
    let both = said.iter().filter(|said| said[1..].starts_with("both"));
    let both: Vec<&str> = both.map(|said| &said[..1]).collect();
    assert!(both.chunks(2).all(|pair| pair == ["+", "-"]), "{said:?}");
}

pub(crate) async fn the_people_of_a_silent_hub_leave_once<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(SHORT).await else { return };
    let (other, ears) = one.another(SHORT).await;
    let (silent, _) = one.another(SHORT).await;
    tell(&silent, &["1", "2", "3"], &[]).await;
    // All who are left look at the same time, again and again.
    wait::until(PATIENCE, async || {
        tokio::join!(one.tell(&["a", "3"], &[]), tell(&other, &["b"], &[]), one.tell(&[], &[]));
        one.who().await == ["3", "a", "b"]
    })
    .await;
    tokio::join!(one.tell(&["a", "3"], &[]), tell(&other, &["b"], &[]), tell(&other, &[], &[]));
    let said = one.announced().await;
    assert_eq!(heard_all(&ears).await.iter().map(words).collect::<Vec<_>>(), said);
    for person in ["1", "2"] {
        let left = said.iter().filter(|said| said.starts_with(&format!("-{person} "))).count();
        assert_eq!(left, 1, "{said:?}");
    }
    assert!(!said.iter().any(|said| said.starts_with("-3")), "{said:?}");
}

pub(crate) async fn many_whose_time_is_up_leave_in_steps<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(SHORT).await else { return };
    let (silent, _) = one.another(SHORT).await;
    let people: Vec<String> = (0..150).map(|person| person.to_string()).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    tell(&silent, &people, &[]).await;
    let (left, steps) = (Cell::new(people.len()), Cell::new(0));
    wait::until(PATIENCE, async || {
        let told = one.tell(&[], &[]).await;
        if told.count < left.get() {
            assert!(left.get() - told.count <= 50, "{} leave at once", left.get() - told.count);
            assert!(told.count == 0 || told.look_within == Some(Duration::ZERO), "there are more");
            steps.set(steps.get() + 1);
        }
        left.set(told.count);
        told.count == 0
    })
    .await;
    assert!(steps.get() >= 3, "{} steps", steps.get());
    let said = one.announced().await;
    assert_eq!(said.iter().filter(|said| said.starts_with('-')).count(), 150);
    assert_eq!(said.len(), 300);
}

pub(crate) async fn a_ghost_is_gone_when_its_own_sign_ends<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(SHORT).await else { return };
    let (silent, _) = one.another(SHORT).await;
    let (watching, _) = one.another(SHORT).await;
    tell(&silent, &["7"], &[]).await;
    let left = async || tell(&watching, &[], &[]).await.look_within.unwrap();
    wait::until(PATIENCE, async || left().await < SHORT.user_ttl * 3 / 4).await;
    let within = one.tell(&["7"], &[]).await.look_within.unwrap();
    assert!(within < SHORT.user_ttl * 3 / 4, "the first sign to end counts, also when there is a newer one");
    one.tell(&[], &["7"]).await;
    assert_eq!(one.who().await, ["7"]);
    assert!(left().await <= within);
    wait::until(PATIENCE, async || {
        tell(&watching, &[], &[]).await;
        one.ears.of(ROOM).iter().map(words).collect::<Vec<_>>() == ["+7 of 7", "-7 of"]
    })
    .await;
    assert_eq!(tell(&watching, &[], &[]).await.look_within, None);
}

pub(crate) async fn a_heartbeat_outlives_a_silent_hub<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(SHORT).await else { return };
    let (silent, _) = one.another(SHORT).await;
    tell(&silent, &["7", "8"], &[]).await;
    wait::until(PATIENCE, async || {
        one.beat("7").await;
        one.tell(&["a"], &[]).await;
        one.who().await == ["7", "a"]
    })
    .await;
    let said = one.announced().await;
    assert!(said.contains(&"-8 of 7 a".to_owned()), "{said:?}");
    assert!(!said.iter().any(|said| said.starts_with("-7")), "{said:?}");
}

pub(crate) async fn every_hub_is_asked_to_look_at_a_large_room_that_changes<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(LONG).await else { return };
    let (other, ears) = one.another(LONG).await;
    fill(&one, MOST_LISTED + 2).await;
    let (heard, soons) = (one.ears.of(ROOM).len(), one.ears.soons());
    // By a hub that may have nobody there, and so never looks again.
    other.beat(&id(ROOM), &id("beat")).await.unwrap();
    other.beat(&id(ROOM), &id("another")).await.unwrap();
    wait::until(PATIENCE, async || one.ears.soons() == soons + 1 && ears.soons() == soons + 1).await;
    let said = look_until(&one, |said| said.len() > heard).await;
    assert_eq!(said[heard..], ["= of 204"]);
}

pub(crate) async fn a_hub_that_goes_on_keeps_its_people<A: Adapter>() {
    let Some(one) = Stage::<A>::empty(SHORT).await else { return };
    let (other, _) = one.another(SHORT).await;
    assert!(one.store.renewal().unwrap() <= SHORT.user_ttl / 3);
    one.beat("clock").await;
    one.tell(&["1", "2"], &[]).await;
    wait::until(PATIENCE, async || {
        one.tell(&["1", "2"], &[]).await;
        tell(&other, &["2", "3"], &[]).await;
        one.who().await == ["1", "2", "3"]
    })
    .await;
    let said = one.announced().await;
    assert_eq!(said.iter().filter(|said| said.starts_with('-')).count(), 1, "{said:?}");
}
