//! Heartbeats: people without a stream, who leave when their heartbeats end.

use bongsu_testkit::wait;

use super::Adapter;
use super::fixture::{Fixture, LONG_LEASES, SHORT_LEASES};
use crate::support::WAIT_TIMEOUT;

pub(crate) async fn a_heartbeat_makes_a_person_present<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fixture.heartbeat("7").await;
    fixture.heartbeat("7").await;
    assert_eq!(fixture.occupants().await, ["7"]);
    assert_eq!(fixture.announcements().await, ["+7 of 7"]);
}

pub(crate) async fn heartbeats_keep_a_person_present<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    fixture.heartbeat("quiet").await;
    fixture.report(&["stream"], &[]).await;
    // The lease of `quiet` expires, while the other two are renewed.
    wait::until(WAIT_TIMEOUT, async || {
        fixture.heartbeat("loud").await;
        fixture.report(&["stream"], &[]).await;
        fixture.occupants().await == ["loud", "stream"]
    })
    .await;
    let announced = fixture.announcements().await;
    assert!(announced.contains(&"-quiet of loud stream".to_owned()), "{announced:?}");
    assert!(
        !announced.iter().any(|announced| announced.starts_with("-loud") || announced.starts_with("-stream")),
        "{announced:?}"
    );
}

pub(crate) async fn an_expired_person_is_removed_and_announced_once<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    fixture.heartbeat("7").await;
    fixture.heartbeat("8").await;
    // An expired person is not listed, also when no report has removed them. The next call announces that they left.
    wait::until(WAIT_TIMEOUT, async || fixture.occupants().await.is_empty()).await;
    for _ in 0..3 {
        fixture.report(&[], &[]).await;
    }
    let announced = fixture.announcements().await;
    assert_eq!(announced, ["+7 of 7", "+8 of 7 8", "-7 of 8", "-8 of"]);
}

pub(crate) async fn a_person_who_returns_after_expiry_leaves_and_joins<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(SHORT_LEASES).await else { return };
    fixture.heartbeat("7").await;
    wait::until(WAIT_TIMEOUT, async || fixture.occupants().await.is_empty()).await;
    fixture.heartbeat("7").await;
    assert_eq!(fixture.announcements().await, ["+7 of 7", "-7 of", "+7 of 7"]);
}

pub(crate) async fn a_heartbeat_lease_ends_with_the_last_stream<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fixture.report(&["7"], &[]).await;
    fixture.heartbeat("7").await;
    fixture.report(&[], &["7"]).await;
    assert!(fixture.occupants().await.is_empty());
    assert_eq!(fixture.announcements().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn a_stream_after_a_heartbeat_is_not_announced<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fixture.heartbeat("7").await;
    fixture.report(&["7"], &[]).await;
    fixture.report(&[], &["7"]).await;
    assert_eq!(fixture.announcements().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn leaving_does_not_affect_a_person_with_only_heartbeats<A: Adapter>() {
    let Some(fixture) = Fixture::<A>::create(LONG_LEASES).await else { return };
    fixture.report(&["7"], &[]).await;
    fixture.report(&[], &["7"]).await;
    fixture.heartbeat("7").await;
    // The same report again, as if the reply to the first one was lost.
    fixture.report(&[], &["7"]).await;
    assert_eq!(fixture.occupants().await, ["7"]);
    assert_eq!(fixture.announcements().await, ["+7 of 7", "-7 of", "+7 of 7"]);
}
