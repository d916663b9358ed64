//! Versions of memberships: an append that was made for an earlier one keeps nothing, and is not overtaken.

use bongsu_live::AppendError::StaleMembership;

use super::Adapter;
use super::support::{Event, Outcome, Stage, appended, subject};

/// The kinds of outcomes of a batch, a letter each: stored, duplicate, stale, something else.
fn kinds(outcomes: &[Outcome]) -> String {
    let kind = |outcome: &Outcome| match outcome {
        Ok(appended) if appended.duplicate => 'd',
        Ok(_) => 's',
        Err(StaleMembership) => '-',
        Err(_) => '?',
    };
    outcomes.iter().map(kind).collect()
}

pub(crate) async fn an_event_made_for_the_current_membership_is_stored<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let version = stage.version("42").await;
    assert_eq!(stage.version("42").await, version, "reading it does not change it");
    for _ in 0..2 {
        stage.append_one(&Event::of("42").version(version).recipients(&["1"])).await;
    }
    stage.change_version("42").await;
    let version = stage.version("42").await;
    stage.append_one(&Event::of("42").version(version)).await;
    stage.append_one(&Event::of("42")).await;
    assert_eq!(stage.ids("42").await.len(), 4);
}

pub(crate) async fn an_event_made_for_an_earlier_membership_keeps_nothing<A: Adapter>() {
    let mut stage = Stage::<A>::mortal().await;
    let earlier = stage.version("42").await;
    let event = Event::of("42").number(1).key("k").recipients(&["1"]);
    for is_reopened in [false, true] {
        stage.change_version("42").await;
        if is_reopened {
            stage.kill_and_reopen().await;
        }
        let stale = stage.append(vec![event.clone().version(earlier)]).await;
        assert_eq!(stale, [Err(StaleMembership)], "reopened: {is_reopened}");
        assert_eq!(stage.ids("42").await, []);
        assert_eq!(stage.adapter().follow_ups().await, [""; 0]);
    }
    assert_eq!(stage.sink.all(), []);
    let version = stage.version("42").await;
    assert_ne!(version, earlier);
    let stored = stage.append_one(&event.version(version)).await;
    assert!(!stored.duplicate, "the refused append has left its key");
}

pub(crate) async fn a_repeated_key_gets_its_first_answer_after_the_membership_changed<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let version = stage.version("42").await;
    let event = Event::of("42").number(1).key("k").version(version);
    let first = stage.append_one(&event).await;
    stage.change_version("42").await;
    let again = stage.append_one(&event).await;
    assert_eq!((again.id, again.duplicate), (first.id, true));
    let other = stage.append(vec![Event::of("42").number(2).key("k").version(version)]).await;
    assert_eq!(other, [Err(bongsu_live::AppendError::Conflict)]);
}

pub(crate) async fn a_stale_event_is_not_overtaken_and_holds_up_no_other_subject<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    let (earlier, other) = (stage.version("42").await, stage.version("43").await);
    let known = stage.append_one(&Event::of("42").number(0).key("k")).await;
    stage.change_version("42").await;
    let version = stage.version("42").await;
    let batch = vec![
        Event::of("42").number(1).version(version),
        Event::of("43").number(2),
        Event::of("42").number(3).version(earlier),
        Event::of("42").number(0).key("k").version(earlier),
        Event::of("42").number(5).version(version),
        Event::of("42").number(6),
        Event::of("43").number(7).version(other),
    ];
    let outcomes = stage.append(batch).await;
    // Embedded, subjects share counters: the other one may have changed, too.
    let is_shared = stage.version("43").await != other;
    assert_eq!(kinds(&outcomes), if is_shared { "ss-d---" } else { "ss-d--s" });
    assert_eq!(appended(&outcomes[3]).id, known.id);
    assert_eq!(stage.ids("42").await, [known.id, appended(&outcomes[0]).id]);
    // A batch that no adapter takes in one piece.
    let many = (0..300).map(|n| Event::of("42").number(n).version(if n == 100 { earlier } else { version }));
    let outcomes = stage.append(many.collect()).await;
    assert_eq!(kinds(&outcomes), "s".repeat(100) + &"-".repeat(200));
    assert_eq!(stage.ids("42").await.len(), 102);
}

pub(crate) async fn an_append_beside_changes_is_taken_with_the_current_version_only<A: Adapter>() {
    let stage = Stage::<A>::empty().await;
    stage.listen(&[subject("42")]).await;
    let log = stage.log();
    for _ in 0..50 {
        let version = stage.version("42").await;
        let event = Event::of("42").version(version);
        let appending = async { log.append(vec![event.append().clone()]).await.unwrap().remove(0) };
        let (_, _) = tokio::join!(appending, stage.change_version("42"));
        let late = stage.append(vec![event]).await;
        assert_eq!(late, [Err(StaleMembership)], "after the change was answered");
    }
}
