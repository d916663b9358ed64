//! Coordination on one Redis: the contract, and how other programs find what is theirs, too.

use std::time::Duration;

use bongsu_coordination::lock::Acquired;
use bongsu_coordination::registry::Records;
use bongsu_testkit::Redis;

use crate::contract;
use crate::hub::{Hub, LEASE, id, shared};

shared!(OnRedis, bongsu_testkit::Engine::Redis);

contract!(OnRedis, fleet);

#[tokio::test]
async fn other_programs_take_and_see_the_same_locks() {
    if !bongsu_testkit::tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = Hub::start(&redis.url(), "app:", Records::Off).await;
    let locks = &hub.coordination.locks;
    let Acquired::Granted(grant) = locks.acquire(&id("42")).await.unwrap() else { panic!("it is free") };
    let key = "app:lock:event:42";
    assert!(redis.command(&["GET", key]).await.text().starts_with(hub.id()));
    let left = redis.command(&["PTTL", key]).await.integer();
    assert!((1..=LEASE.as_millis() as i64).contains(&left), "{left}");
    assert!(locks.release(&grant).await.unwrap());
    assert_eq!(redis.command(&["EXISTS", key]).await.integer(), 0);
    // Another program's, with an end and without one.
    redis.command(&["SET", key, "somebody", "NX", "EX", "100"]).await.accepted();
    let Acquired::Taken(Some(ends)) = locks.acquire(&id("42")).await.unwrap() else { panic!("it is taken") };
    assert!(ends > Duration::from_secs(50), "{ends:?}");
    redis.command(&["SET", key, "somebody"]).await.accepted();
    assert!(matches!(locks.acquire(&id("42")).await.unwrap(), Acquired::Taken(None)));
}

#[tokio::test]
async fn tokens_grow_also_when_redis_has_lost_everything() {
    if !bongsu_testkit::tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = Hub::start(&redis.url(), "", Records::Off).await;
    let locks = &hub.coordination.locks;
    let mut last = None;
    for _ in 0..3 {
        let Acquired::Granted(grant) = locks.acquire(&id("42")).await.unwrap() else { panic!("it is free") };
        assert!(Some(grant.fence()) > last);
        last = Some(grant.fence());
        redis.command(&["FLUSHALL"]).await.accepted();
    }
}
