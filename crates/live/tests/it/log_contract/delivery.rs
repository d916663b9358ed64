//! Delivery: the sink gets every durable event once and in the order of its subject, with the id of the previous
//! event.

use bongsu_kernel::StreamId;

use super::Adapter;
use super::support::{Event, LogFixture, NOW, RecordedDelivery, appended, subject};

/// Whether every delivery has the id of the one before it, beginning with `previous`.
fn is_chained(deliveries: &[RecordedDelivery], mut previous: StreamId) -> bool {
    deliveries
        .iter()
        .all(|delivery| std::mem::replace(&mut previous, delivery.entry.position.id) == delivery.previous)
}

pub(crate) async fn a_batch_is_delivered_in_order_before_the_answer<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    for round in 0..20 {
        let before = fixture.sink.all().len();
        let rooms = ["1", "2", "1", "3", "2", "1"];
        let events = rooms.map(|room| Event::of(room).number(round)).to_vec();
        let outcomes = fixture.append(events).await;
        let deliveries = fixture.sink.all().split_off(before);
        for room in ["1", "2", "3"] {
            let of_room = deliveries.iter().filter(|delivery| delivery.subject == subject(room));
            let delivered = of_room.map(|delivery| delivery.entry.position.id);
            let appended_to_room = rooms.iter().zip(&outcomes).filter(|(of, _)| **of == room);
            assert!(
                delivered.eq(appended_to_room.map(|(_, outcome)| appended(outcome).id)),
                "{round}: {room}"
            );
        }
    }
}

pub(crate) async fn every_delivery_has_the_id_of_the_previous_event<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    for now in [NOW, NOW + 7, NOW, NOW + 8, NOW + 9] {
        fixture.clock.set(now);
        fixture.append(vec![Event::of("1"), Event::of("2"), Event::of("1")]).await;
    }
    for (room, count) in [("1", 10), ("2", 5)] {
        let deliveries = fixture.sink.of(room);
        assert_eq!(deliveries.len(), count);
        assert!(is_chained(&deliveries, StreamId::START), "{deliveries:#?}");
    }
}

pub(crate) async fn previous_ids_stay_chained_over_reopening_and_trimming<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    for round in 0..6 {
        for _ in 0..50 {
            fixture.append_one(&Event::of("42").keep(2)).await;
        }
        if round % 2 == 0 { fixture.reopen().await } else { fixture.kill_and_reopen().await }
    }
    let deliveries = fixture.sink.of("42");
    assert_eq!(deliveries.len(), 300);
    assert!(is_chained(&deliveries, StreamId::START), "{deliveries:#?}");
}

pub(crate) async fn repeated_and_refused_events_are_not_delivered<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let batch = vec![event.clone(), event.clone(), Event::of("42").number(2).key("k"), Event::of("42")];
    fixture.append(batch).await;
    fixture.append(vec![event]).await;
    let deliveries = fixture.sink.of("42");
    assert_eq!(deliveries.len(), 2);
    assert!(is_chained(&deliveries, StreamId::START), "{deliveries:#?}");
}

pub(crate) async fn delivered_events_equal_those_in_the_log<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let rich = Event::of("42").data("{\"text\":\"김철수 \\u0000 \\\"{}\\\" 🔥\"}").kind("comment.created.v2");
    fixture.append(vec![rich.publisher("user:1@x"), Event::of("42").publisher("7"), Event::of("42")]).await;
    let delivered: Vec<_> = fixture.sink.of("42").into_iter().map(|delivery| delivery.entry).collect();
    assert_eq!(delivered, fixture.entries("42").await);
}
