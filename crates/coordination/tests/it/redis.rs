//! Runs the contracts on one Redis, and tests the keys of locks that other programs share.

use std::time::Duration;

use bongsu_coordination::lock::AcquireOutcome;
use bongsu_coordination::registry::RecordsLocation;
use bongsu_testkit::Redis;

use crate::contract;
use crate::hub::{Hub, LEASE_TTL, fleet_engine, id};

fleet_engine!(RedisEngine, bongsu_testkit::Engine::Redis);

contract!(RedisEngine, fleet);

#[tokio::test]
async fn other_programs_share_locks_by_their_documented_key() {
    if !bongsu_testkit::tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = Hub::start(&redis.url(), "app:", RecordsLocation::Off).await;
    let locks = &hub.coordination.locks;
    let AcquireOutcome::Acquired(lease) = locks.acquire(&id("42")).await.unwrap() else {
        panic!("the lock is not free")
    };
    let key = "app:lock:event:42";
    assert!(redis.command(&["GET", key]).await.text().starts_with(hub.id()));
    let ttl_ms = redis.command(&["PTTL", key]).await.integer();
    assert!((1..=LEASE_TTL.as_millis() as i64).contains(&ttl_ms), "{ttl_ms}");
    assert!(locks.release(&lease).await.unwrap());
    assert_eq!(redis.command(&["EXISTS", key]).await.integer(), 0);
    // Another program sets the key, with an expiry and without one.
    redis.command(&["SET", key, "somebody", "NX", "EX", "100"]).await.expect_ok();
    let AcquireOutcome::Taken(Some(remaining)) = locks.acquire(&id("42")).await.unwrap() else {
        panic!("the lock is free")
    };
    assert!(remaining > Duration::from_secs(50), "{remaining:?}");
    redis.command(&["SET", key, "somebody"]).await.expect_ok();
    assert!(matches!(locks.acquire(&id("42")).await.unwrap(), AcquireOutcome::Taken(None)));
}

/// Three tasks compete for one lock, whose key other programs share.
#[tokio::test]
async fn distributed_lock_one_of_three_tasks_gets_it_and_only_its_owner_releases_it() {
    if !bongsu_testkit::tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = Hub::start(&redis.url(), "", RecordsLocation::Off).await;
    let (locks, event) = (&hub.coordination.locks, id("42"));
    let outcomes = tokio::join!(locks.acquire(&event), locks.acquire(&event), locks.acquire(&event));
    let acquired =
        [outcomes.0, outcomes.1, outcomes.2].into_iter().filter_map(|outcome| match outcome.unwrap() {
            AcquireOutcome::Acquired(lease) => Some(lease),
            AcquireOutcome::Taken(_) => None,
        });
    let [lease] = <[_; 1]>::try_from(acquired.collect::<Vec<_>>()).expect("one of three has it");
    let key = "lock:event:42";
    let owner = redis.command(&["GET", key]).await.text().to_owned();
    // The lock expired and has another owner now: a release by the first owner does not delete it.
    redis.command(&["SET", key, "another"]).await.expect_ok();
    assert!(!locks.release(&lease).await.unwrap());
    assert_eq!(redis.command(&["GET", key]).await.text(), "another");
    redis.command(&["SET", key, owner.as_str()]).await.expect_ok();
    assert!(locks.release(&lease).await.unwrap());
    assert_eq!(redis.command(&["EXISTS", key]).await.integer(), 0);
}
