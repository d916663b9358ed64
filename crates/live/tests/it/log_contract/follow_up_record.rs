//! The follow-up record: stored together with its event, in a format that stays readable.

use bongsu_kernel::trace::TraceParent;
use bongsu_kernel::{Id, StreamId};
use bongsu_live::LogEntry;
use bongsu_live::log::FollowUp;

use super::Adapter;
use super::support::{Event, LogFixture, NOW, subject};

const GOLDEN: &str = include_str!("../../golden/follow_up.v1.json");
const GOLDEN_OF_MEMBERS: &str = include_str!("../../golden/follow_up.v2.json");

/// The recipients that a record names.
fn recipients(record: &FollowUp) -> Vec<&str> {
    record.recipients.as_ref().expect("the record names its recipients").iter().map(Id::as_str).collect()
}

fn decoded(records: &[String]) -> Vec<FollowUp> {
    records.iter().map(|record| serde_json::from_str(record).expect("a valid record")).collect()
}

pub(crate) async fn an_event_with_recipients_has_a_follow_up_record<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(7).publisher("1").recipients(&["2", "kim"]);
    let first = fixture.append_one(&event).await;
    let second = fixture.append_one(&Event::of("lobby").recipients(&["9"])).await;
    let mut records = decoded(&fixture.adapter().stored_follow_ups().await);
    records.sort_by_key(|record| record.subject.clone());
    assert_eq!(records.len(), 2);
    let FollowUp { v, subject, stream_id, event_type, traceparent, data, publisher_id, timestamp, .. } =
        &records[0];
    assert_eq!((*v, subject.as_str(), stream_id), (1, "room:42", &first.id.to_string()));
    assert_eq!((event_type.as_str(), data.get(), *timestamp), ("test.happened", "{\"number\":7}", NOW));
    assert_eq!((publisher_id.as_ref().map(Id::as_str), *traceparent), (Some("1"), None));
    assert_eq!(recipients(&records[0]), ["2", "kim"]);
    assert_eq!(
        (records[1].stream_id.clone(), records[1].publisher_id.is_none()),
        (second.id.to_string(), true)
    );
}

pub(crate) async fn the_trace_is_stored_with_the_event_and_in_its_record<A: Adapter>() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").recipients(&["2"]);
    fixture.append_one(&event.clone().publisher("1").trace(TRACE)).await;
    fixture.append_one(&event.clone().trace(TRACE)).await;
    fixture.append_one(&event).await;
    let expected = [Some(TRACE), Some(TRACE), None];
    let entries = fixture.entries("42").await;
    let traces: Vec<_> = entries.iter().map(|entry| entry.trace.as_ref().map(TraceParent::as_str)).collect();
    assert_eq!(traces, expected);
    let delivered: Vec<LogEntry> = fixture.sink.of("42").into_iter().map(|delivery| delivery.entry).collect();
    assert_eq!(delivered, entries, "deliveries have the trace as well");
    let records = decoded(&fixture.adapter().stored_follow_ups().await);
    let traces: Vec<_> =
        records.iter().map(|record| record.traceparent.as_ref().map(TraceParent::as_str)).collect();
    assert_eq!(traces, expected);
}

pub(crate) async fn events_without_recipients_leave_no_record<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    fixture.append(vec![Event::of("42"), Event::of("42").publisher("1")]).await;
    assert_eq!(fixture.adapter().stored_follow_ups().await, Vec::<String>::new());
}

pub(crate) async fn repeated_and_refused_events_leave_no_record<A: Adapter>() {
    let mut fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k").recipients(&["1"]);
    let other = Event::of("42").number(2).key("k").recipients(&["2"]);
    fixture.append(vec![event.clone(), event.clone(), other.clone()]).await;
    fixture.reopen().await;
    fixture.append(vec![event, other]).await;
    let records = decoded(&fixture.adapter().stored_follow_ups().await);
    assert_eq!(records.len(), 1);
    assert_eq!(recipients(&records[0]), ["1"]);
}

pub(crate) async fn records_outlast_trimming_and_kills<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    for number in 0..300 {
        fixture.append_one(&Event::of("42").number(number).recipients(&["1"]).keep(1)).await;
    }
    fixture.kill_and_reopen().await;
    assert!(fixture.ids("42").await.len() < 300, "no entry was trimmed");
    let records = decoded(&fixture.adapter().stored_follow_ups().await);
    let data: Vec<&str> = records.iter().map(|record| record.data.get()).collect();
    assert_eq!(data, (0..300).map(|number| format!("{{\"number\":{number}}}")).collect::<Vec<_>>());
}

pub(crate) async fn a_record_equals_the_golden_file<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event =
        Event::of("42").kind("retrospect.submitted").publisher("1").recipients(&["2", "kim@x", "007"]);
    fixture
        .append_one(&event.data("{\"userId\":1,\"userName\":\"김철수\",\"score\":1.50,\"tags\":[]}"))
        .await;
    let written = fixture.adapter().stored_follow_ups().await;
    assert_eq!(written, [GOLDEN.trim_end()], "the record differs from version 1");
    let record = &decoded(&[GOLDEN.to_owned()])[0];
    assert_eq!((record.v, record.stream_id.as_str(), record.timestamp), (1, "1708070400000-0", NOW));
    assert_eq!(recipients(record), ["2", "kim@x", "007"]);
    // A reader accepts any order of the fields, and ignores fields of later versions.
    let with_later_field = GOLDEN.replacen("{\"v\":1,", "{\"later\":[1],\"v\":1,", 1);
    assert_eq!(decoded(&[with_later_field])[0].stream_id, record.stream_id);
}

pub(crate) async fn a_record_for_members_equals_the_golden_file<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    fixture.append_one(&Event::of("42").number(7).publisher("1").for_members()).await;
    assert_eq!(fixture.adapter().stored_follow_ups().await, [GOLDEN_OF_MEMBERS.trim_end()]);
    let follow_ups = A::follow_ups(fixture.running());
    let found = follow_ups.find(&subject("42"), StreamId::new(NOW, 0)).await.unwrap().expect("a record");
    assert_eq!((found.v, found.recipients.is_none()), (2, true));
    let members = ["1", "2", "3"].map(|id| Id::new(id).unwrap()).to_vec();
    assert_eq!(found.filter_recipients(members.clone()), members[1..], "without the publisher");
}
