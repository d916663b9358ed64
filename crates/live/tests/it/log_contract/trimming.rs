//! Trimming: a subject keeps at least its newest events, as many as it is told, and not many more.

use bongsu_kernel::StreamId;
use bongsu_testkit::tier;

use super::Adapter;
use super::support::{Event, Stage, subject};

/// How many more than asked for may be kept at times: adapters remove in steps.
const MORE: usize = 128;

pub(crate) async fn a_subject_keeps_its_newest_events_and_not_many_more<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    for keep in [3_u32, 100, 250] {
        let room = keep.to_string();
        let mut given: Vec<StreamId> = Vec::new();
        for number in 0..u64::from(keep) * 2 + 300 {
            given.push(stage.append_one(&Event::of(&room).number(number).keep(keep)).await.id);
            if number % 37 != 0 {
                continue;
            }
            let left = stage.ids(&room).await;
            let least = given.len().min(keep as usize);
            assert!(
                (least..=keep as usize + MORE).contains(&left.len()),
                "{} of {keep} are kept",
                left.len()
            );
            assert!(given.ends_with(&left), "the newest are kept, without a hole");
        }
    }
}

pub(crate) async fn a_subject_that_keeps_one_event_keeps_the_newest<A: Adapter>() {
    let mut stage = Stage::<A>::empty().await;
    for number in 0..200 {
        let newest = stage.append_one(&Event::of("42").number(number).keep(1)).await.id;
        assert_eq!(stage.ids("42").await.last(), Some(&newest));
    }
    assert!(stage.ids("42").await.len() <= 1 + MORE);
    stage.reopen().await;
    assert!((1..=1 + MORE).contains(&stage.ids("42").await.len()));
}

pub(crate) async fn a_lower_number_to_keep_is_reached_with_the_next_events<A: Adapter>() {
    let mut stage = Stage::<A>::empty().await;
    stage.append(vec![Event::of("42").keep(5_000); 3_000]).await;
    assert_eq!(stage.ids("42").await.len(), 3_000);
    stage.reopen().await;
    for _ in 0..50 {
        stage.append_one(&Event::of("42").keep(10)).await;
    }
    let left = stage.ids("42").await.len();
    assert!((10..=10 + MORE).contains(&left), "{left} of 10 are kept");
    // A higher one keeps more from then on.
    stage.append(vec![Event::of("42").keep(1_000); 600]).await;
    assert!(stage.ids("42").await.len() >= 600);
}

pub(crate) async fn events_are_counted_on_over_trimming<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    for round in 1..=3_u64 {
        stage.append(vec![Event::of("42").keep(5); 100]).await;
        stage.kill_and_reopen().await;
        // A log that does not count says so everywhere.
        let entries = stage.entries("42").await;
        let Some(newest) = stage.head("42").await.number else {
            assert!(entries.iter().all(|entry| entry.place.number.is_none()));
            return tier::not_applicable("this log does not count its events");
        };
        assert_eq!(newest, round * 100);
        let first = newest - entries.len() as u64 + 1;
        let numbers: Vec<u64> = entries.iter().map(|entry| entry.place.number.unwrap()).collect();
        assert_eq!(numbers, (first..=newest).collect::<Vec<_>>());
    }
}

pub(crate) async fn a_purge_leaves_the_newest_entry_and_forgets_keys<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    for number in 0..100 {
        stage.append_one(&Event::of("42").number(number).key(&format!("key {number}"))).await;
    }
    let other = stage.append_one(&Event::of("43").key("key 1")).await;
    let newest = stage.ids("42").await[99];
    stage.log().purge(&subject("42")).await.unwrap();
    stage.log().purge(&subject("nowhere")).await.unwrap();
    stage.kill_and_reopen().await;
    assert_eq!(stage.ids("42").await, [newest]);
    let again = stage.append_one(&Event::of("42").number(1).key("key 1")).await;
    assert!(!again.duplicate && again.id > newest);
    assert_eq!(stage.entries("42").await[1].place.number, Some(101), "events are counted on");
    assert_eq!(stage.ids("43").await, [other.id], "and other subjects are left alone");
    assert!(stage.append_one(&Event::of("43").key("key 1")).await.duplicate);
}
