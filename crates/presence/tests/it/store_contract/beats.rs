//! Heartbeats: people without a stream, who are gone when they say nothing more.

use bongsu_testkit::wait;

use super::Adapter;
use super::stage::{LONG, SHORT, Stage};
use crate::support::PATIENCE;

pub(crate) async fn a_heartbeat_is_coming<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    stage.beat("7").await;
    stage.beat("7").await;
    assert_eq!(stage.who().await, ["7"]);
    assert_eq!(stage.announced().await, ["+7 of 7"]);
}

pub(crate) async fn heartbeats_keep_somebody_there<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(SHORT).await else { return };
    stage.beat("quiet").await;
    stage.tell(&["stream"], &[]).await;
    // The other's time shows how much has passed.
    wait::until(PATIENCE, async || {
        stage.beat("loud").await;
        stage.tell(&["stream"], &[]).await;
        stage.who().await == ["loud", "stream"]
    })
    .await;
    let said = stage.announced().await;
    assert!(said.contains(&"-quiet of loud stream".to_owned()), "{said:?}");
    assert!(!said.iter().any(|said| said.starts_with("-loud") || said.starts_with("-stream")), "{said:?}");
}

pub(crate) async fn whose_time_is_up_is_gone_and_announced_once<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(SHORT).await else { return };
    stage.beat("7").await;
    stage.beat("8").await;
    // Gone at once, also when nobody looks; announced when somebody does.
    wait::until(PATIENCE, async || stage.who().await.is_empty()).await;
    for _ in 0..3 {
        stage.tell(&[], &[]).await;
    }
    let said = stage.announced().await;
    assert_eq!(said, ["+7 of 7", "+8 of 7 8", "-7 of 8", "-8 of"]);
}

pub(crate) async fn who_comes_back_too_late_has_left_and_comes<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(SHORT).await else { return };
    stage.beat("7").await;
    wait::until(PATIENCE, async || stage.who().await.is_empty()).await;
    stage.beat("7").await;
    assert_eq!(stage.announced().await, ["+7 of 7", "-7 of", "+7 of 7"]);
}

pub(crate) async fn a_heartbeat_beside_a_stream_leaves_with_it<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    stage.tell(&["7"], &[]).await;
    stage.beat("7").await;
    stage.tell(&[], &["7"]).await;
    assert!(stage.who().await.is_empty());
    assert_eq!(stage.announced().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn a_stream_after_a_heartbeat_is_no_coming<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    stage.beat("7").await;
    stage.tell(&["7"], &[]).await;
    stage.tell(&[], &["7"]).await;
    assert_eq!(stage.announced().await, ["+7 of 7", "-7 of"]);
}

pub(crate) async fn leaving_does_not_touch_somebody_with_heartbeats_only<A: Adapter>() {
    let Some(stage) = Stage::<A>::empty(LONG).await else { return };
    stage.tell(&["7"], &[]).await;
    stage.tell(&[], &["7"]).await;
    stage.beat("7").await;
    // The same word once more, because its answer was lost.
    stage.tell(&[], &["7"]).await;
    assert_eq!(stage.who().await, ["7"]);
    assert_eq!(stage.announced().await, ["+7 of 7", "-7 of", "+7 of 7"]);
}
