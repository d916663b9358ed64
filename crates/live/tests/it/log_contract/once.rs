//! Repeating: the same subject, key and content within 24 hours is one event with one answer; and what an outcome of
//! one event means for the others of its batch.

use bongsu_live::{AppendError, Appended};

use super::Adapter;
use super::support::{Event, NOW, Stage, appended};

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// The answer that a repeated request gets after this first one.
fn again(first: &Appended) -> Appended {
    Appended { duplicate: true, ..first.clone() }
}

pub(crate) async fn the_same_key_and_content_is_one_event<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k").audience(3);
    let first = stage.append_one(&event).await;
    assert!(!first.duplicate);
    assert_eq!((first.audience, first.at), (3, NOW));
    stage.clock.set(NOW + 5_000);
    // The second answer equals the first, whoever listens by now.
    assert_eq!(stage.append_one(&event.audience(9)).await, again(&first));
    assert_eq!(stage.ids("42").await, [first.id]);
}

pub(crate) async fn the_same_key_with_other_content_is_refused<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let first = stage.append_one(&Event::of("42").number(1).key("k")).await;
    let other = Event::of("42").number(2).key("k");
    assert_eq!(stage.append(vec![other.clone()]).await, [Err(AppendError::Conflict)]);
    assert_eq!(stage.append(vec![other]).await, [Err(AppendError::Conflict)]);
    assert_eq!(stage.ids("42").await, [first.id]);
    // The refusal did not take the place of the first answer.
    assert_eq!(stage.append_one(&Event::of("42").number(1).key("k")).await, again(&first));
}

pub(crate) async fn a_digest_that_an_earlier_version_stored_is_the_same_content<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let first = stage.append_one(&event).await;
    assert_eq!(stage.append_one(&event.clone().new_digest()).await, again(&first));
    let other = Event::of("42").number(2).key("k").new_digest();
    assert_eq!(stage.append(vec![other]).await, [Err(AppendError::Conflict)]);
    // What this version stores is compared by its own digest.
    let event = Event::of("43").number(1).key("k");
    stage.append_one(&event.clone().new_digest()).await;
    assert_eq!(stage.append(vec![event]).await, [Err(AppendError::Conflict)]);
}

pub(crate) async fn the_same_key_in_another_subject_is_another_event<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let rooms = ["42", "43", "4"];
    stage.append(rooms.map(Event::of).to_vec()).await;
    for (at, room) in rooms.into_iter().enumerate() {
        assert!(!stage.append_one(&Event::of(room).number(at as u64).key("k")).await.duplicate, "{room}");
        assert_eq!(stage.ids(room).await.len(), 2);
    }
    // Keys are told apart to the letter.
    for key in ["K", "k ", " k", "kk", "키", "k'--", "k\u{0}x"] {
        assert!(!stage.append_one(&Event::of("42").key(key)).await.duplicate, "{key:?}");
    }
}

pub(crate) async fn without_a_key_every_append_is_an_event<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    for _ in 0..3 {
        assert!(!stage.append_one(&Event::of("42").number(1)).await.duplicate);
    }
    assert_eq!(stage.ids("42").await.len(), 3);
}

pub(crate) async fn a_key_is_kept_for_24_hours<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let first = stage.append_one(&event).await;
    stage.clock.set(NOW + DAY - 1);
    assert_eq!(stage.append_one(&event).await, again(&first));
    stage.clock.set(NOW + DAY + 1);
    let second = stage.append_one(&event).await;
    assert!(!second.duplicate && second.id > first.id, "{second:?}");
    // From here on the second answer is the one that is kept, for another 24 hours, with any content before it.
    stage.clock.set(NOW + 2 * DAY);
    assert_eq!(stage.append_one(&event).await, again(&second));
    stage.clock.set(NOW + 3 * DAY + 2);
    assert!(!stage.append_one(&Event::of("42").number(2).key("k")).await.duplicate);
}

pub(crate) async fn keys_outlast_reopening_and_kills<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    let event = |number| Event::of("42").number(number).key(&format!("k{number}")).audience(7);
    let mut firsts = Vec::new();
    for number in 0..4 {
        firsts.push(stage.append_one(&event(number)).await);
        if number % 2 == 0 {
            stage.reopen().await;
        } else {
            stage.kill_and_reopen().await;
        }
        for (earlier, first) in firsts.iter().enumerate() {
            assert_eq!(stage.append_one(&event(earlier as u64)).await, again(first));
        }
        let other = Event::of("42").number(99).key("k0");
        assert_eq!(stage.append(vec![other]).await, [Err(AppendError::Conflict)]);
    }
    assert_eq!(stage.ids("42").await.len(), 4);
}

pub(crate) async fn keys_outlast_the_trimming_of_their_event<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k").keep(1);
    let first = stage.append_one(&event).await;
    for _ in 0..300 {
        stage.append_one(&Event::of("42").keep(1)).await;
    }
    assert!(!stage.ids("42").await.contains(&first.id), "the event was to be trimmed");
    assert_eq!(stage.append_one(&event).await, again(&first));
}

pub(crate) async fn a_key_twice_in_one_batch_is_one_event<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let outcomes = stage.append(vec![event.clone(), event, Event::of("42").number(2).key("k")]).await;
    let first = appended(&outcomes[0]);
    assert_eq!(outcomes[1..], [Ok(again(first)), Err(AppendError::Conflict)]);
    assert_eq!(stage.ids("42").await, [first.id]);
}

pub(crate) async fn a_refused_event_leaves_the_rest_of_its_batch_alone<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let first = stage.append_one(&Event::of("42").number(0).key("k")).await;
    let batch = vec![
        Event::of("42").number(1),
        Event::of("42").number(2).key("k"),
        Event::of("42").number(3),
        Event::of("43").number(4).key("k"),
        Event::of("42").number(0).key("k"),
        Event::of("42").number(5).key("l"),
    ];
    let outcomes = stage.append(batch).await;
    assert_eq!((&outcomes[1], &outcomes[4]), (&Err(AppendError::Conflict), &Ok(again(&first))));
    let data: Vec<String> =
        stage.entries("42").await.iter().map(|entry| entry.data.as_str().to_owned()).collect();
    assert_eq!(data, [0, 1, 3, 5].map(|number| format!("{{\"number\":{number}}}")));
    let ids = [&outcomes[0], &outcomes[2], &outcomes[5]].map(|outcome| appended(outcome).id);
    assert_eq!(stage.ids("42").await[1..], ids);
    assert_eq!(stage.ids("43").await, [appended(&outcomes[3]).id]);
}

pub(crate) async fn many_at_once_with_one_key_are_one_event<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let event = Event::of("42").number(1).key("k");
    let log = stage.log();
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let (log, append) = (log.clone(), event.append().clone());
        asking.spawn(async move { log.append(vec![append]).await });
    }
    let outcomes = asking.join_all().await;
    let answers: Vec<Appended> =
        outcomes.into_iter().map(|outcome| appended(&outcome.unwrap()[0]).clone()).collect();
    assert_eq!(answers.iter().filter(|answer| !answer.duplicate).count(), 1);
    assert!(answers.iter().all(|answer| answer.id == answers[0].id));
    assert_eq!(stage.ids("42").await, [answers[0].id]);
}
