//! Told in order: the sink hears of every event once, after it is durable and before it is answered, each with the id
//! before it in its subject.

use bongsu_kernel::StreamId;

use super::Adapter;
use super::support::{Event, NOW, Stage, Told, appended, subject};

/// Whether every event names the one before it, beginning after `previous`.
fn chained(told: &[Told], mut previous: StreamId) -> bool {
    told.iter().all(|told| std::mem::replace(&mut previous, told.entry.place.id) == told.previous)
}

pub(crate) async fn the_sink_hears_of_a_batch_in_order_before_the_answer<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    for round in 0..20 {
        let before = stage.sink.all().len();
        let rooms = ["1", "2", "1", "3", "2", "1"];
        let events = rooms.map(|room| Event::of(room).number(round)).to_vec();
        let outcomes = stage.append(events).await;
        let told = stage.sink.all().split_off(before);
        for room in ["1", "2", "3"] {
            let told =
                told.iter().filter(|told| told.subject == subject(room)).map(|told| told.entry.place.id);
            let own = rooms.iter().zip(&outcomes).filter(|(of, _)| **of == room);
            assert!(told.eq(own.map(|(_, outcome)| appended(outcome).id)), "{round}: {room}");
        }
    }
}

pub(crate) async fn every_event_names_the_one_before_it<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    for now in [NOW, NOW + 7, NOW, NOW + 8, NOW + 9] {
        stage.clock.set(now);
        stage.append(vec![Event::of("1"), Event::of("2"), Event::of("1")]).await;
    }
    for (room, count) in [("1", 10), ("2", 5)] {
        let told = stage.sink.of(room);
        assert_eq!(told.len(), count);
        assert!(chained(&told, StreamId::START), "{told:#?}");
    }
}

pub(crate) async fn the_chain_goes_on_over_reopening_and_trimming<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    for round in 0..6 {
        for _ in 0..50 {
            stage.append_one(&Event::of("42").keep(2)).await;
        }
        if round % 2 == 0 { stage.reopen().await } else { stage.kill_and_reopen().await }
    }
    let told = stage.sink.of("42");
    assert_eq!(told.len(), 300);
    assert!(chained(&told, StreamId::START), "{told:#?}");
}

pub(crate) async fn repeated_and_refused_events_are_not_told<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let batch = vec![event.clone(), event.clone(), Event::of("42").number(2).key("k"), Event::of("42")];
    stage.append(batch).await;
    stage.append(vec![event]).await;
    let told = stage.sink.of("42");
    assert_eq!(told.len(), 2);
    assert!(chained(&told, StreamId::START), "{told:#?}");
}

pub(crate) async fn what_is_told_is_what_is_read<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let rich = Event::of("42").data("{\"text\":\"김철수 \\u0000 \\\"{}\\\" 🔥\"}").kind("comment.created.v2");
    stage.append(vec![rich.publisher("user:1@x"), Event::of("42").publisher("7"), Event::of("42")]).await;
    let told: Vec<_> = stage.sink.of("42").into_iter().map(|told| told.entry).collect();
    assert_eq!(told, stage.entries("42").await);
}
