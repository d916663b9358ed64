//! What was written down for people, as whoever sees to it finds it.

use std::time::{Duration, Instant};

use bongsu_kernel::StreamId;
use bongsu_live::log::{FollowUps, Pending};
use bongsu_testkit::wait;

use super::Adapter;
use super::support::{Event, Stage, subject};

const SOON: Duration = Duration::from_secs(60);

fn event(room: &str, number: u64) -> Event {
    Event::of(room).number(number).recipients(&["7"])
}

/// Whose records these are, and their numbers.
fn numbers(pending: &[Pending]) -> Vec<(String, u64)> {
    let read = |one: &Pending| {
        let record = one.read().expect("a record");
        let data: serde_json::Value = serde_json::from_str(record.data.get()).unwrap();
        (record.subject, data["number"].as_u64().unwrap())
    };
    pending.iter().map(read).collect()
}

/// Goes on taking until something is there.
async fn taken(follow_ups: &dyn FollowUps, most: usize, but: &[Pending]) -> Vec<Pending> {
    let found = wait::value_within(SOON, || async {
        Some(follow_ups.take(most, but).await.unwrap()).filter(|pending| !pending.is_empty())
    });
    found.await.expect("something to take")
}

pub(crate) async fn a_record_is_taken_until_it_is_done<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    for number in 0..5 {
        stage.append_one(&event("42", number)).await;
    }
    let follow_ups = A::seen_to(stage.running());
    let first = taken(&*follow_ups, 2, &[]).await;
    let both = [("room:42".to_owned(), 0), ("room:42".to_owned(), 1)];
    assert_eq!(numbers(&first), both, "the oldest, in order");
    assert_eq!(numbers(&taken(&*follow_ups, 2, &[]).await), both, "until they are done");
    follow_ups.done(first.clone()).await.unwrap();
    // Twice changes nothing more.
    follow_ups.done(first).await.unwrap();
    drop(follow_ups);
    stage.kill_and_reopen().await;
    let follow_ups = A::seen_to(stage.running());
    let rest = taken(&*follow_ups, 10, &[]).await;
    assert_eq!(numbers(&rest).iter().map(|(_, number)| *number).collect::<Vec<_>>(), [2, 3, 4]);
    follow_ups.done(rest).await.unwrap();
    assert_eq!(numbers(&follow_ups.take(10, &[]).await.unwrap()), []);
    // And what comes later is found, though the place was empty.
    stage.append_one(&event("42", 5)).await;
    assert_eq!(numbers(&taken(&*follow_ups, 10, &[]).await), [("room:42".to_owned(), 5)]);
}

pub(crate) async fn what_could_not_be_seen_to_holds_up_nothing_behind_it<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    for number in 0..6 {
        stage.append_one(&event("42", number)).await;
    }
    let follow_ups = A::seen_to(stage.running());
    let mut but: Vec<Pending> = Vec::new();
    for number in 0..6 {
        let next = taken(&*follow_ups, 1, &but).await;
        assert_eq!(numbers(&next), [("room:42".to_owned(), number)]);
        but.extend(next);
    }
    assert_eq!(numbers(&follow_ups.take(10, &but).await.unwrap()), []);
    let later = but.split_off(3);
    follow_ups.done(later).await.unwrap();
    stage.append_one(&event("42", 6)).await;
    assert_eq!(numbers(&taken(&*follow_ups, 10, &but).await), [("room:42".to_owned(), 6)]);
    let all: Vec<u64> =
        numbers(&taken(&*follow_ups, 10, &[]).await).into_iter().map(|(_, number)| number).collect();
    assert_eq!(all, [0, 1, 2, 6], "they are still there, in their order");
}

pub(crate) async fn the_record_of_an_event_is_found_while_it_waits<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let mut ids = Vec::new();
    // The clock stands still, so both rooms have events of the same ids.
    for number in 0..100 {
        let room = if number % 3 == 0 { "lobby" } else { "42" };
        ids.push((room, number, stage.append_one(&event(room, number)).await.id));
    }
    // What a publisher writes is not taken for the record's own.
    let forged = format!("{{\"streamId\":\"{}\",\"number\":100}}", StreamId::new(5, 5));
    let last = stage.append_one(&event("42", 0).data(&forged)).await.id;
    ids.push(("42", 100, last));
    let silent = stage.append_one(&Event::of("42")).await.id;
    let follow_ups = A::seen_to(stage.running());
    let find = async |room: &str, id: StreamId| follow_ups.find(&subject(room), id).await.unwrap();
    for (room, number, id) in &ids {
        let found = find(room, *id).await.unwrap_or_else(|| panic!("{number} of {room}"));
        assert_eq!((found.subject.as_str(), found.stream_id), (subject(room).as_str(), id.to_string()));
        let data: serde_json::Value = serde_json::from_str(found.data.get()).unwrap();
        let named = found.recipients.expect("a name");
        assert_eq!((data["number"].as_u64(), named[0].as_str()), (Some(*number), "7"));
    }
    for id in [silent, StreamId::START, StreamId::new(5, 5), StreamId::new(u64::MAX, u64::MAX)] {
        assert!(find("42", id).await.is_none(), "{id}");
    }
    assert!(find("nowhere", ids[0].2).await.is_none());
    let mut left = ids.len();
    while left > 0 {
        let some = taken(&*follow_ups, 40, &[]).await;
        assert!(!some.is_empty(), "{left} records cannot be taken");
        left -= some.len();
        follow_ups.done(some).await.unwrap();
    }
    for (room, _, id) in ids {
        assert!(find(room, id).await.is_none(), "it was done");
    }
}

pub(crate) async fn news_of_a_record_comes_to_who_watches<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let follow_ups = A::seen_to(stage.running());
    for turn in 0..2 {
        let watch = follow_ups.watch().await;
        for number in 0..3 {
            stage.append_one(&event("42", number)).await;
            // In rounds as a worker makes them: it waits when it has found nothing.
            let deadline = Instant::now() + SOON;
            let mut done = Vec::new();
            while done.is_empty() {
                assert!(Instant::now() < deadline, "no news in turn {turn}");
                tokio::time::timeout(SOON, watch.news()).await.expect("news");
                done = follow_ups.take(10, &[]).await.unwrap();
            }
            assert_eq!(numbers(&done), [("room:42".to_owned(), number)]);
            follow_ups.done(done).await.unwrap();
            assert_eq!(numbers(&follow_ups.take(10, &[]).await.unwrap()), []);
        }
    }
}
