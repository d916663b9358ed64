//! The membership version in Redis: it may be lost, and expires when it is not read for a day.

use bongsu_live::AppendError::StaleMembership;
use bongsu_testkit::redis::Redis as Server;

use super::RedisAdapter;
use crate::log_contract::Adapter;
use crate::log_contract::support::{Event, LogFixture};

#[tokio::test]
async fn a_version_that_redis_has_lost_is_stale_and_a_new_one_is_created() {
    if !RedisAdapter::<Server>::is_available() {
        return;
    }
    let fixture = LogFixture::<RedisAdapter<Server>>::empty().await;
    let prefix = &fixture.adapter().prefix;
    let key = format!("{prefix}{{{prefix}room:events:42}}:membership");
    let event = |version| Event::of("42").version(version).recipients(&["1"]);
    let lost = fixture.version("42").await;
    fixture.append_one(&event(lost)).await;
    fixture.adapter().command(&["DEL", &key]).await;
    assert_eq!(fixture.append(vec![event(lost)]).await, [Err(StaleMembership)], "no version is stored");
    let version = fixture.version("42").await;
    assert_ne!(version, lost);
    assert_eq!(fixture.append(vec![event(lost)]).await, [Err(StaleMembership)], "another version is stored");
    fixture.append_one(&event(version)).await;
    assert_eq!(fixture.ids("42").await.len(), 2);
    // A read extends the lifetime to another day.
    fixture.adapter().command(&["PEXPIRE", &key, "60000"]).await;
    assert_eq!(fixture.version("42").await, version);
    let lifetime = fixture.adapter().command(&["PTTL", &key]).await.integer();
    assert!((86_000_000..=86_400_000).contains(&lifetime), "{lifetime} ms");
}
