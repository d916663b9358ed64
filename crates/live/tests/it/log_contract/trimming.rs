//! Trimming: a subject keeps at least its newest `keep` events, and not many more.

use bongsu_kernel::StreamId;
use bongsu_testkit::tier;

use super::Adapter;
use super::support::{Event, LogFixture, subject};

/// Events above `keep` that may be stored, because adapters trim in steps.
const MAX_EXCESS: usize = 128;

pub(crate) async fn a_subject_keeps_its_newest_events_and_not_many_more<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    for keep in [3_u32, 100, 250] {
        let room = keep.to_string();
        let mut appended: Vec<StreamId> = Vec::new();
        for number in 0..u64::from(keep) * 2 + 300 {
            appended.push(fixture.append_one(&Event::of(&room).number(number).keep(keep)).await.id);
            if number % 37 != 0 {
                continue;
            }
            let left = fixture.ids(&room).await;
            let least = appended.len().min(keep as usize);
            assert!(
                (least..=keep as usize + MAX_EXCESS).contains(&left.len()),
                "{} of {keep} are kept",
                left.len()
            );
            assert!(appended.ends_with(&left), "the newest events are kept, without a gap");
        }
    }
}

pub(crate) async fn a_subject_that_keeps_one_event_keeps_the_newest<A: Adapter>() {
    let mut fixture = LogFixture::<A>::empty().await;
    for number in 0..200 {
        let newest = fixture.append_one(&Event::of("42").number(number).keep(1)).await.id;
        assert_eq!(fixture.ids("42").await.last(), Some(&newest));
    }
    assert!(fixture.ids("42").await.len() <= 1 + MAX_EXCESS);
    fixture.reopen().await;
    assert!((1..=1 + MAX_EXCESS).contains(&fixture.ids("42").await.len()));
}

pub(crate) async fn a_lowered_number_to_keep_is_reached_with_the_next_events<A: Adapter>() {
    let mut fixture = LogFixture::<A>::empty().await;
    fixture.append(vec![Event::of("42").keep(5_000); 3_000]).await;
    assert_eq!(fixture.ids("42").await.len(), 3_000);
    fixture.reopen().await;
    for _ in 0..50 {
        fixture.append_one(&Event::of("42").keep(10)).await;
    }
    let left = fixture.ids("42").await.len();
    assert!((10..=10 + MAX_EXCESS).contains(&left), "{left} of 10 are kept");
    // An append with a larger `keep` makes the log keep more events from then on.
    fixture.append(vec![Event::of("42").keep(1_000); 600]).await;
    assert!(fixture.ids("42").await.len() >= 600);
}

pub(crate) async fn numbers_continue_over_trimming<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    for round in 1..=3_u64 {
        fixture.append(vec![Event::of("42").keep(5); 100]).await;
        fixture.kill_and_reopen().await;
        // In a log that does not count its entries, no entry has a number.
        let entries = fixture.entries("42").await;
        let Some(newest) = fixture.head("42").await.number else {
            assert!(entries.iter().all(|entry| entry.position.number.is_none()));
            return tier::not_applicable("this log does not count its events");
        };
        assert_eq!(newest, round * 100);
        let first = newest - entries.len() as u64 + 1;
        let numbers: Vec<u64> = entries.iter().map(|entry| entry.position.number.unwrap()).collect();
        assert_eq!(numbers, (first..=newest).collect::<Vec<_>>());
    }
}

pub(crate) async fn a_purge_keeps_the_newest_entry_and_removes_keys<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    for number in 0..100 {
        fixture.append_one(&Event::of("42").number(number).key(&format!("key {number}"))).await;
    }
    let other = fixture.append_one(&Event::of("43").key("key 1")).await;
    let newest = fixture.ids("42").await[99];
    fixture.log().purge(&subject("42")).await.unwrap();
    fixture.log().purge(&subject("nowhere")).await.unwrap();
    fixture.kill_and_reopen().await;
    assert_eq!(fixture.ids("42").await, [newest]);
    let again = fixture.append_one(&Event::of("42").number(1).key("key 1")).await;
    assert!(!again.duplicate && again.id > newest);
    assert_eq!(fixture.entries("42").await[1].position.number, Some(101), "the numbers continue");
    assert_eq!(fixture.ids("43").await, [other.id], "other subjects are unchanged");
    assert!(fixture.append_one(&Event::of("43").key("key 1")).await.duplicate);
}
