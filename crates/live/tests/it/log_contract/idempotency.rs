//! Idempotency: appends with the same subject, key and content within 24 hours are one event with one answer. Also how
//! the outcome of one event affects the others of its batch.

use bongsu_live::{AppendError, AppendOutcome};

use super::Adapter;
use super::support::{Event, LogFixture, NOW, appended};

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// The answer to a repetition of the append that returned `first`.
fn repeated(first: &AppendOutcome) -> AppendOutcome {
    AppendOutcome { duplicate: true, ..first.clone() }
}

pub(crate) async fn the_same_key_and_content_is_one_event<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k").audience(3);
    let first = fixture.append_one(&event).await;
    assert!(!first.duplicate);
    assert_eq!((first.audience, first.at), (3, NOW));
    fixture.clock.set(NOW + 5_000);
    // The second answer equals the first, although the audience has changed.
    assert_eq!(fixture.append_one(&event.audience(9)).await, repeated(&first));
    assert_eq!(fixture.ids("42").await, [first.id]);
}

pub(crate) async fn the_same_key_with_other_content_is_refused<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let first = fixture.append_one(&Event::of("42").number(1).key("k")).await;
    let other = Event::of("42").number(2).key("k");
    assert_eq!(fixture.append(vec![other.clone()]).await, [Err(AppendError::Conflict)]);
    assert_eq!(fixture.append(vec![other]).await, [Err(AppendError::Conflict)]);
    assert_eq!(fixture.ids("42").await, [first.id]);
    // The refused append did not replace the first answer.
    assert_eq!(fixture.append_one(&Event::of("42").number(1).key("k")).await, repeated(&first));
}

pub(crate) async fn a_digest_of_an_earlier_version_counts_as_the_same_content<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let first = fixture.append_one(&event).await;
    assert_eq!(fixture.append_one(&event.clone().new_digest()).await, repeated(&first));
    let other = Event::of("42").number(2).key("k").new_digest();
    assert_eq!(fixture.append(vec![other]).await, [Err(AppendError::Conflict)]);
    // Events that this version stores are compared by the new digest.
    let event = Event::of("43").number(1).key("k");
    fixture.append_one(&event.clone().new_digest()).await;
    assert_eq!(fixture.append(vec![event]).await, [Err(AppendError::Conflict)]);
}

pub(crate) async fn the_same_key_in_another_subject_is_another_event<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let rooms = ["42", "43", "4"];
    fixture.append(rooms.map(Event::of).to_vec()).await;
    for (at, room) in rooms.into_iter().enumerate() {
        assert!(!fixture.append_one(&Event::of(room).number(at as u64).key("k")).await.duplicate, "{room}");
        assert_eq!(fixture.ids(room).await.len(), 2);
    }
    // Keys are compared byte by byte.
    for key in ["K", "k ", " k", "kk", "키", "k'--", "k\u{0}x"] {
        assert!(!fixture.append_one(&Event::of("42").key(key)).await.duplicate, "{key:?}");
    }
}

pub(crate) async fn without_a_key_every_append_is_an_event<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    for _ in 0..3 {
        assert!(!fixture.append_one(&Event::of("42").number(1)).await.duplicate);
    }
    assert_eq!(fixture.ids("42").await.len(), 3);
}

pub(crate) async fn a_key_is_kept_for_24_hours<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let first = fixture.append_one(&event).await;
    fixture.clock.set(NOW + DAY - 1);
    assert_eq!(fixture.append_one(&event).await, repeated(&first));
    fixture.clock.set(NOW + DAY + 1);
    let second = fixture.append_one(&event).await;
    assert!(!second.duplicate && second.id > first.id, "{second:?}");
    // From here on the second answer is stored, for another 24 hours.
    fixture.clock.set(NOW + 2 * DAY);
    assert_eq!(fixture.append_one(&event).await, repeated(&second));
    fixture.clock.set(NOW + 3 * DAY + 2);
    assert!(!fixture.append_one(&Event::of("42").number(2).key("k")).await.duplicate);
}

pub(crate) async fn keys_outlast_reopening_and_kills<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    let event = |number| Event::of("42").number(number).key(&format!("k{number}")).audience(7);
    let mut firsts = Vec::new();
    for number in 0..4 {
        firsts.push(fixture.append_one(&event(number)).await);
        if number % 2 == 0 {
            fixture.reopen().await;
        } else {
            fixture.kill_and_reopen().await;
        }
        for (earlier, first) in firsts.iter().enumerate() {
            assert_eq!(fixture.append_one(&event(earlier as u64)).await, repeated(first));
        }
        let other = Event::of("42").number(99).key("k0");
        assert_eq!(fixture.append(vec![other]).await, [Err(AppendError::Conflict)]);
    }
    assert_eq!(fixture.ids("42").await.len(), 4);
}

pub(crate) async fn keys_outlast_the_trimming_of_their_event<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k").keep(1);
    let first = fixture.append_one(&event).await;
    for _ in 0..300 {
        fixture.append_one(&Event::of("42").keep(1)).await;
    }
    assert!(!fixture.ids("42").await.contains(&first.id), "the event was not trimmed");
    assert_eq!(fixture.append_one(&event).await, repeated(&first));
}

pub(crate) async fn a_key_twice_in_one_batch_is_one_event<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let outcomes = fixture.append(vec![event.clone(), event, Event::of("42").number(2).key("k")]).await;
    let first = appended(&outcomes[0]);
    assert_eq!(outcomes[1..], [Ok(repeated(first)), Err(AppendError::Conflict)]);
    assert_eq!(fixture.ids("42").await, [first.id]);
}

pub(crate) async fn a_refused_event_does_not_affect_the_rest_of_its_batch<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let first = fixture.append_one(&Event::of("42").number(0).key("k")).await;
    let batch = vec![
        Event::of("42").number(1),
        Event::of("42").number(2).key("k"),
        Event::of("42").number(3),
        Event::of("43").number(4).key("k"),
        Event::of("42").number(0).key("k"),
        Event::of("42").number(5).key("l"),
    ];
    let outcomes = fixture.append(batch).await;
    assert_eq!((&outcomes[1], &outcomes[4]), (&Err(AppendError::Conflict), &Ok(repeated(&first))));
    let data: Vec<String> =
        fixture.entries("42").await.iter().map(|entry| entry.data.as_str().to_owned()).collect();
    assert_eq!(data, [0, 1, 3, 5].map(|number| format!("{{\"number\":{number}}}")));
    let ids = [&outcomes[0], &outcomes[2], &outcomes[5]].map(|outcome| appended(outcome).id);
    assert_eq!(fixture.ids("42").await[1..], ids);
    assert_eq!(fixture.ids("43").await, [appended(&outcomes[3]).id]);
}

pub(crate) async fn concurrent_appends_with_one_key_are_one_event<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let log = fixture.log();
    let mut appending = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (log, append) = (log.clone(), event.append().clone());
        appending.spawn(async move { log.append(vec![append]).await });
    }
    let outcomes = appending.join_all().await;
    let answers: Vec<AppendOutcome> =
        outcomes.into_iter().map(|outcome| appended(&outcome.unwrap()[0]).clone()).collect();
    assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1);
    assert!(answers.iter().all(|answer| answer.id == answers[0].id));
    assert_eq!(fixture.ids("42").await, [answers[0].id]);
}
