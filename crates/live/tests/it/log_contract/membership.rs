//! Membership versions: an append that was made for an earlier version stores no event, and no later event
//! overtakes it.

use bongsu_live::AppendError::StaleMembership;

use super::Adapter;
use super::support::{Event, LogFixture, Outcome, appended, subject};

/// The outcomes of a batch, one character each: `s` stored, `d` duplicate, `-` stale, `?` another error.
fn summary(outcomes: &[Outcome]) -> String {
    let letter = |outcome: &Outcome| match outcome {
        Ok(appended) if appended.duplicate => 'd',
        Ok(_) => 's',
        Err(StaleMembership) => '-',
        Err(_) => '?',
    };
    outcomes.iter().map(letter).collect()
}

pub(crate) async fn an_event_made_for_the_current_membership_is_stored<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let version = fixture.version("42").await;
    assert_eq!(fixture.version("42").await, version, "reading it does not change it");
    for _ in 0..2 {
        fixture.append_one(&Event::of("42").version(version).recipients(&["1"])).await;
    }
    fixture.change_version("42").await;
    let version = fixture.version("42").await;
    fixture.append_one(&Event::of("42").version(version)).await;
    fixture.append_one(&Event::of("42")).await;
    assert_eq!(fixture.ids("42").await.len(), 4);
}

pub(crate) async fn an_event_made_for_an_earlier_membership_stores_nothing<A: Adapter>() {
    let mut fixture = LogFixture::<A>::killable().await;
    let earlier = fixture.version("42").await;
    let event = Event::of("42").number(1).key("k").recipients(&["1"]);
    for is_reopened in [false, true] {
        fixture.change_version("42").await;
        if is_reopened {
            fixture.kill_and_reopen().await;
        }
        let stale = fixture.append(vec![event.clone().version(earlier)]).await;
        assert_eq!(stale, [Err(StaleMembership)], "reopened: {is_reopened}");
        assert_eq!(fixture.ids("42").await, []);
        assert_eq!(fixture.adapter().stored_follow_ups().await, [""; 0]);
    }
    assert_eq!(fixture.sink.all(), []);
    let version = fixture.version("42").await;
    assert_ne!(version, earlier);
    let stored = fixture.append_one(&event.version(version)).await;
    assert!(!stored.duplicate, "the refused append stored its key");
}

pub(crate) async fn a_repeated_key_gets_its_first_answer_after_the_membership_changed<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let version = fixture.version("42").await;
    let event = Event::of("42").number(1).key("k").version(version);
    let first = fixture.append_one(&event).await;
    fixture.change_version("42").await;
    let again = fixture.append_one(&event).await;
    assert_eq!((again.id, again.duplicate), (first.id, true));
    let other = fixture.append(vec![Event::of("42").number(2).key("k").version(version)]).await;
    assert_eq!(other, [Err(bongsu_live::AppendError::Conflict)]);
}

pub(crate) async fn a_stale_event_stops_its_subject_and_no_other<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    let (earlier, other) = (fixture.version("42").await, fixture.version("43").await);
    let known = fixture.append_one(&Event::of("42").number(0).key("k")).await;
    fixture.change_version("42").await;
    let version = fixture.version("42").await;
    let batch = vec![
        Event::of("42").number(1).version(version),
        Event::of("43").number(2),
        Event::of("42").number(3).version(earlier),
        Event::of("42").number(0).key("k").version(earlier),
        Event::of("42").number(5).version(version),
        Event::of("42").number(6),
        Event::of("43").number(7).version(other),
    ];
    let outcomes = fixture.append(batch).await;
    // In the embedded log, subjects share counters, so the version of the other room may have changed as well.
    let is_shared = fixture.version("43").await != other;
    assert_eq!(summary(&outcomes), if is_shared { "ss-d---" } else { "ss-d--s" });
    assert_eq!(appended(&outcomes[3]).id, known.id);
    assert_eq!(fixture.ids("42").await, [known.id, appended(&outcomes[0]).id]);
    // A batch that is larger than one call of any adapter.
    let many = (0..300).map(|n| Event::of("42").number(n).version(if n == 100 { earlier } else { version }));
    let outcomes = fixture.append(many.collect()).await;
    assert_eq!(summary(&outcomes), "s".repeat(100) + &"-".repeat(200));
    assert_eq!(fixture.ids("42").await.len(), 102);
}

pub(crate) async fn an_append_during_a_change_needs_the_current_version<A: Adapter>() {
    let fixture = LogFixture::<A>::empty().await;
    fixture.subscribe(&[subject("42")]).await;
    let log = fixture.log();
    for _ in 0..50 {
        let version = fixture.version("42").await;
        let event = Event::of("42").version(version);
        let appending = async { log.append(vec![event.append().clone()]).await.unwrap().remove(0) };
        let (_, _) = tokio::join!(appending, fixture.change_version("42"));
        let late = fixture.append(vec![event]).await;
        assert_eq!(late, [Err(StaleMembership)], "after the change was answered");
    }
}
