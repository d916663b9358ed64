//! The version of a membership in Redis: it may be lost, and is forgotten when nobody reads it for a day.

use bongsu_live::AppendError::StaleMembership;
use bongsu_testkit::redis::Redis as Server;

use super::OnRedis;
use crate::log_contract::Adapter;
use crate::log_contract::support::{Event, Stage};

#[tokio::test]
async fn a_version_that_redis_has_lost_is_stale_and_a_new_one_is_made() {
    if !OnRedis::<Server>::is_available() {
        return;
    }
    let stage = Stage::<OnRedis<Server>>::empty().await;
    let prefix = &stage.adapter().prefix;
    let key = format!("{prefix}{{{prefix}room:events:42}}:membership");
    let event = |version| Event::of("42").version(version).recipients(&["1"]);
    let lost = stage.version("42").await;
    stage.append_one(&event(lost)).await;
    stage.adapter().command(&["DEL", &key]).await;
    assert_eq!(stage.append(vec![event(lost)]).await, [Err(StaleMembership)], "none is there");
    let version = stage.version("42").await;
    assert_ne!(version, lost);
    assert_eq!(stage.append(vec![event(lost)]).await, [Err(StaleMembership)], "another one is there");
    stage.append_one(&event(version)).await;
    assert_eq!(stage.ids("42").await.len(), 2);
    // Reading it keeps it for another day.
    stage.adapter().command(&["PEXPIRE", &key, "60000"]).await;
    assert_eq!(stage.version("42").await, version);
    let life = stage.adapter().command(&["PTTL", &key]).await.integer();
    assert!((86_000_000..=86_400_000).contains(&life), "{life} ms");
}
