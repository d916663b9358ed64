//! The record of who is to be told beside the stream: one with its event, and in a form that is never broken.

use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Id, StreamId};
use bongsu_live::Entry;
use bongsu_live::log::FollowUp;

use super::Adapter;
use super::support::{Event, NOW, Stage, subject};

const GOLDEN: &str = include_str!("../../golden/follow_up.v1.json");
const GOLDEN_OF_MEMBERS: &str = include_str!("../../golden/follow_up.v2.json");

/// Those whom a record names.
fn named(record: &FollowUp) -> Vec<&str> {
    record.recipients.as_ref().expect("names").iter().map(Id::as_str).collect()
}

fn decoded(records: &[String]) -> Vec<FollowUp> {
    records.iter().map(|record| serde_json::from_str(record).expect("a record that can be read")).collect()
}

pub(crate) async fn who_is_to_be_told_is_written_down_with_the_event<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(7).publisher("1").recipients(&["2", "kim"]);
    let first = stage.append_one(&event).await;
    let second = stage.append_one(&Event::of("lobby").recipients(&["9"])).await;
    let mut records = decoded(&stage.adapter().follow_ups().await);
    records.sort_by_key(|record| record.subject.clone());
    assert_eq!(records.len(), 2);
    let FollowUp { v, subject, stream_id, event_type, traceparent, data, publisher_id, timestamp, .. } =
        &records[0];
    assert_eq!((*v, subject.as_str(), stream_id), (1, "room:42", &first.id.to_string()));
    assert_eq!((event_type.as_str(), data.get(), *timestamp), ("test.happened", "{\"number\":7}", NOW));
    assert_eq!((publisher_id.as_ref().map(Id::as_str), *traceparent), (Some("1"), None));
    assert_eq!(named(&records[0]), ["2", "kim"]);
    assert_eq!(
        (records[1].stream_id.clone(), records[1].publisher_id.is_none()),
        (second.id.to_string(), true)
    );
}

pub(crate) async fn the_trace_of_an_event_is_kept_with_it_and_with_its_record<A: Adapter>() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").recipients(&["2"]);
    stage.append_one(&event.clone().publisher("1").trace(TRACE)).await;
    stage.append_one(&event.clone().trace(TRACE)).await;
    stage.append_one(&event).await;
    let expected = [Some(TRACE), Some(TRACE), None];
    let entries = stage.entries("42").await;
    let traces: Vec<_> = entries.iter().map(|entry| entry.trace.as_ref().map(TraceParent::as_str)).collect();
    assert_eq!(traces, expected);
    let told: Vec<Entry> = stage.sink.of("42").into_iter().map(|told| told.entry).collect();
    assert_eq!(told, entries, "live it is the same");
    let records = decoded(&stage.adapter().follow_ups().await);
    let traces: Vec<_> =
        records.iter().map(|record| record.traceparent.as_ref().map(TraceParent::as_str)).collect();
    assert_eq!(traces, expected);
}

pub(crate) async fn events_without_recipients_leave_no_record<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    stage.append(vec![Event::of("42"), Event::of("42").publisher("1")]).await;
    assert_eq!(stage.adapter().follow_ups().await, Vec::<String>::new());
}

pub(crate) async fn repeated_and_refused_events_leave_no_record<A: Adapter>() {
    let mut stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k").recipients(&["1"]);
    let other = Event::of("42").number(2).key("k").recipients(&["2"]);
    stage.append(vec![event.clone(), event.clone(), other.clone()]).await;
    stage.reopen().await;
    stage.append(vec![event, other]).await;
    let records = decoded(&stage.adapter().follow_ups().await);
    assert_eq!(records.len(), 1);
    assert_eq!(named(&records[0]), ["1"]);
}

pub(crate) async fn records_outlast_trimming_and_kills<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    for number in 0..300 {
        stage.append_one(&Event::of("42").number(number).recipients(&["1"]).keep(1)).await;
    }
    stage.kill_and_reopen().await;
    assert!(stage.ids("42").await.len() < 300, "something was to be trimmed");
    let records = decoded(&stage.adapter().follow_ups().await);
    let data: Vec<&str> = records.iter().map(|record| record.data.get()).collect();
    assert_eq!(data, (0..300).map(|number| format!("{{\"number\":{number}}}")).collect::<Vec<_>>());
}

pub(crate) async fn the_record_is_exactly_the_golden_one<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event =
        Event::of("42").kind("retrospect.submitted").publisher("1").recipients(&["2", "kim@x", "007"]);
    stage.append_one(&event.data("{\"userId\":1,\"userName\":\"김철수\",\"score\":1.50,\"tags\":[]}")).await;
    let written = stage.adapter().follow_ups().await;
    assert_eq!(written, [GOLDEN.trim_end()], "today's writer writes something else than version 1 was");
    let record = &decoded(&[GOLDEN.to_owned()])[0];
    assert_eq!((record.v, record.stream_id.as_str(), record.timestamp), (1, "1708070400000-0", NOW));
    assert_eq!(named(record), ["2", "kim@x", "007"]);
    // The order of a record's fields and fields of later versions do not matter to a reader.
    let foreign = GOLDEN.replacen("{\"v\":1,", "{\"later\":[1],\"v\":1,", 1);
    assert_eq!(decoded(&[foreign])[0].stream_id, record.stream_id);
}

pub(crate) async fn the_record_for_members_is_exactly_the_golden_one<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    stage.append_one(&Event::of("42").number(7).publisher("1").for_members()).await;
    assert_eq!(stage.adapter().follow_ups().await, [GOLDEN_OF_MEMBERS.trim_end()]);
    let follow_ups = A::seen_to(stage.running());
    let found = follow_ups.find(&subject("42"), StreamId::new(NOW, 0)).await.unwrap().expect("a record");
    assert_eq!((found.v, found.recipients.is_none()), (2, true));
    let members = ["1", "2", "3"].map(|id| Id::new(id).unwrap()).to_vec();
    assert_eq!(found.among(members.clone()), members[1..], "less the publisher");
}
