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

/// As the source names it among its integration scenarios.
#[tokio::test]
async fn distributed_lock_one_of_three_tasks_gets_it_and_only_its_owner_releases_it() {
    if !bongsu_testkit::tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = Hub::start(&redis.url(), "", Records::Off).await;
    let (locks, event) = (&hub.coordination.locks, id("42"));
    let tries = tokio::join!(locks.acquire(&event), locks.acquire(&event), locks.acquire(&event));
    let granted = [tries.0, tries.1, tries.2].into_iter().filter_map(|tried| match tried.unwrap() {
        Acquired::Granted(grant) => Some(grant),
        Acquired::Taken(_) => None,
    });
    let [grant] = <[_; 1]>::try_from(granted.collect::<Vec<_>>()).expect("one of three has it");
    let key = "lock:event:42";
    let owner = redis.command(&["GET", key]).await.text().to_owned();
    // It ended, and another has it now: the first one's release does not touch it.
    redis.command(&["SET", key, "another"]).await.accepted();
    assert!(!locks.release(&grant).await.unwrap());
    assert_eq!(redis.command(&["GET", key]).await.text(), "another");
    redis.command(&["SET", key, owner.as_str()]).await.accepted();
    assert!(locks.release(&grant).await.unwrap());
    assert_eq!(redis.command(&["EXISTS", key]).await.integer(), 0);
}
