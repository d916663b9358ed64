//! The port of follow-up records, as the inbox uses it.

use std::time::{Duration, Instant};

use bongsu_kernel::StreamId;
use bongsu_live::log::{FollowUps, PendingFollowUp};
use bongsu_testkit::wait;

use super::Adapter;
use super::support::{Event, LogFixture, subject};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn event(room: &str, number: u64) -> Event {
    Event::of(room).number(number).recipients(&["7"])
}

/// The subjects of records, and the numbers of their events.
fn numbers(pending: &[PendingFollowUp]) -> Vec<(String, u64)> {
    let read = |pending: &PendingFollowUp| {
        let record = pending.decode().expect("a record");
        let data: serde_json::Value = serde_json::from_str(record.data.get()).unwrap();
        (record.subject, data["number"].as_u64().unwrap())
    };
    pending.iter().map(read).collect()
}

/// Takes records, and waits until there are any.
async fn take(
    follow_ups: &dyn FollowUps,
    limit: usize,
    excluded: &[PendingFollowUp],
) -> Vec<PendingFollowUp> {
    let found = wait::value_within(WAIT_TIMEOUT, || async {
        Some(follow_ups.take(limit, excluded).await.unwrap()).filter(|pending| !pending.is_empty())
    });
    found.await.expect("a record")
}

pub(crate) async fn a_record_is_taken_until_it_is_acknowledged<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    for number in 0..5 {
        fixture.append_one(&event("42", number)).await;
    }
    let follow_ups = A::follow_ups(fixture.running());
    let first = take(&*follow_ups, 2, &[]).await;
    let oldest_two = [("room:42".to_owned(), 0), ("room:42".to_owned(), 1)];
    assert_eq!(numbers(&first), oldest_two, "the oldest records, in order");
    assert_eq!(numbers(&take(&*follow_ups, 2, &[]).await), oldest_two, "again, until they are acknowledged");
    follow_ups.acknowledge(first.clone()).await.unwrap();
    // Acknowledging the same records again has no effect.
    follow_ups.acknowledge(first).await.unwrap();
    drop(follow_ups);
    fixture.kill_and_reopen().await;
    let follow_ups = A::follow_ups(fixture.running());
    let rest = take(&*follow_ups, 10, &[]).await;
    assert_eq!(numbers(&rest).iter().map(|(_, number)| *number).collect::<Vec<_>>(), [2, 3, 4]);
    follow_ups.acknowledge(rest).await.unwrap();
    assert_eq!(numbers(&follow_ups.take(10, &[]).await.unwrap()), []);
    // A later record is found, although the list was empty before.
    fixture.append_one(&event("42", 5)).await;
    assert_eq!(numbers(&take(&*follow_ups, 10, &[]).await), [("room:42".to_owned(), 5)]);
}

pub(crate) async fn excluded_records_do_not_block_later_ones<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    for number in 0..6 {
        fixture.append_one(&event("42", number)).await;
    }
    let follow_ups = A::follow_ups(fixture.running());
    let mut excluded: Vec<PendingFollowUp> = Vec::new();
    for number in 0..6 {
        let next = take(&*follow_ups, 1, &excluded).await;
        assert_eq!(numbers(&next), [("room:42".to_owned(), number)]);
        excluded.extend(next);
    }
    assert_eq!(numbers(&follow_ups.take(10, &excluded).await.unwrap()), []);
    let later = excluded.split_off(3);
    follow_ups.acknowledge(later).await.unwrap();
    fixture.append_one(&event("42", 6)).await;
    assert_eq!(numbers(&take(&*follow_ups, 10, &excluded).await), [("room:42".to_owned(), 6)]);
    let all: Vec<u64> =
        numbers(&take(&*follow_ups, 10, &[]).await).into_iter().map(|(_, number)| number).collect();
    assert_eq!(all, [0, 1, 2, 6], "the excluded records are still stored, in their order");
}

pub(crate) async fn the_record_of_an_event_is_found_until_it_is_acknowledged<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let mut ids = Vec::new();
    // The clock stands still, so both rooms have events with the same ids.
    for number in 0..100 {
        let room = if number % 3 == 0 { "lobby" } else { "42" };
        ids.push((room, number, fixture.append_one(&event(room, number)).await.id));
    }
    // A streamId in the data of the publisher is not the record's own.
    let forged = format!("{{\"streamId\":\"{}\",\"number\":100}}", StreamId::new(5, 5));
    let last = fixture.append_one(&event("42", 0).data(&forged)).await.id;
    ids.push(("42", 100, last));
    let without_recipients = fixture.append_one(&Event::of("42")).await.id;
    let follow_ups = A::follow_ups(fixture.running());
    let find = async |room: &str, id: StreamId| follow_ups.find(&subject(room), id).await.unwrap();
    for (room, number, id) in &ids {
        let found = find(room, *id).await.unwrap_or_else(|| panic!("{number} of {room}"));
        assert_eq!((found.subject.as_str(), found.stream_id), (subject(room).as_str(), id.to_string()));
        let data: serde_json::Value = serde_json::from_str(found.data.get()).unwrap();
        let recipients = found.recipients.expect("the record names its recipients");
        assert_eq!((data["number"].as_u64(), recipients[0].as_str()), (Some(*number), "7"));
    }
    for id in [without_recipients, StreamId::START, StreamId::new(5, 5), StreamId::new(u64::MAX, u64::MAX)] {
        assert!(find("42", id).await.is_none(), "{id}");
    }
    assert!(find("nowhere", ids[0].2).await.is_none());
    let mut left = ids.len();
    while left > 0 {
        let batch = take(&*follow_ups, 40, &[]).await;
        assert!(!batch.is_empty(), "{left} records cannot be taken");
        left -= batch.len();
        follow_ups.acknowledge(batch).await.unwrap();
    }
    for (room, _, id) in ids {
        assert!(find(room, id).await.is_none(), "the record was acknowledged");
    }
}

pub(crate) async fn a_watch_reports_a_new_record<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let follow_ups = A::follow_ups(fixture.running());
    for round in 0..2 {
        let watch = follow_ups.watch().await;
        for number in 0..3 {
            fixture.append_one(&event("42", number)).await;
            // Like the inbox, the test waits for the watch whenever it has found no record.
            let deadline = Instant::now() + WAIT_TIMEOUT;
            let mut pending = Vec::new();
            while pending.is_empty() {
                assert!(Instant::now() < deadline, "no record in round {round}");
                tokio::time::timeout(WAIT_TIMEOUT, watch.changed()).await.expect("a change");
                pending = follow_ups.take(10, &[]).await.unwrap();
            }
            assert_eq!(numbers(&pending), [("room:42".to_owned(), number)]);
            follow_ups.acknowledge(pending).await.unwrap();
            assert_eq!(numbers(&follow_ups.take(10, &[]).await.unwrap()), []);
        }
    }
}
