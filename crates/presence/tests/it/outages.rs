//! Redis that is down, paused, or has lost its data: streams stay open, queries fail, and people are reported again.

use std::time::Duration;

use bongsu_kernel::Code;
use bongsu_presence::Options;
use bongsu_testkit::{Engine, Redis, tier, wait};

use crate::store_contract::fixture::LONG_LEASES;
use crate::support::{Hub, RedisNamespace, WAIT_TIMEOUT, id};

const MEDIUM_LEASES: Options =
    Options { user_ttl: Duration::from_secs(6), hash_ttl: Duration::from_secs(30) };

/// Whether one of the updates after the first `count` is a refresh.
fn is_refreshed_after(count: usize, hub: &Hub, room: &str) -> bool {
    let updates = hub.sink.updates(room).split_off(count);
    updates.iter().any(|update| update.joined.is_none() && update.left.is_none())
}

#[tokio::test]
async fn people_are_reported_again_after_redis_lost_its_data() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::builder().setting("appendonly", "no").start().await;
    let namespace = RedisNamespace::at(redis.url());
    // No lease expires, so the people are not reported again by regular renewals.
    let [a, b] = [(); 2].map(|()| Hub::start_on(&namespace, LONG_LEASES));
    let room = id("42");
    let _stays = a.presence.join(&room, &id("1")).await;
    let leaves = a.presence.join(&room, &id("2")).await;
    let _too = b.presence.join(&room, &id("3")).await;
    a.wait_for_update("42", &["1", "2", "3"]).await;
    redis.kill9().await;

    // Streams can be opened meanwhile; queries fail.
    let _joins = a.presence.join(&room, &id("4")).await;
    let _alone = b.presence.join(&id("43"), &id("4")).await;
    drop(leaves);
    let error = a.presence.occupants(&room, None, 1).await.unwrap_err();
    assert_eq!(error.code(), Code::Redis5001, "{error}");
    let error = a.presence.heartbeat(&room, &id("5")).await.unwrap_err();
    assert_eq!(error.code(), Code::Redis5001, "{error}");

    redis.restart().await;
    a.wait_for_occupants("42", &["1", "3", "4"]).await;
    b.wait_for_occupants("43", &["4"]).await;
    for hub in [&a, &b] {
        hub.wait_for_update("42", &["1", "3", "4"]).await;
    }
    b.wait_for_update("43", &["4"]).await;
    // Later changes are announced as usual.
    let _next = b.presence.join(&room, &id("6")).await;
    a.wait_for_update("42", &["1", "3", "4", "6"]).await;
}

#[tokio::test]
async fn an_instance_that_starts_without_redis_works_once_redis_runs() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::start().await;
    redis.kill9().await;
    let hub = Hub::start_on(&RedisNamespace::at(redis.url()), LONG_LEASES);
    let _one = hub.presence.join(&id("42"), &id("1")).await;
    let two = hub.presence.join(&id("42"), &id("2")).await;
    redis.restart().await;
    hub.wait_for_occupants("42", &["1", "2"]).await;
    hub.wait_for_update("42", &["1", "2"]).await;
    drop(two);
    hub.wait_for_update("42", &["1"]).await;
}

#[tokio::test]
async fn people_who_expired_while_redis_was_paused_return() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::start().await;
    let namespace = RedisNamespace::at(redis.url());
    let [a, b] = [(); 2].map(|()| Hub::start_on(&namespace, MEDIUM_LEASES));
    let _one = a.presence.join(&id("42"), &id("1")).await;
    let _two = b.presence.join(&id("42"), &id("2")).await;
    redis.pause();
    let error = a.presence.occupants(&id("42"), None, 1).await.unwrap_err();
    assert_eq!(error.code(), Code::Redis5001, "{error}");
    // The pause itself is the fault, so its length is fixed.
    let clock = std::time::Instant::now();
    wait::until(WAIT_TIMEOUT, async || clock.elapsed() > MEDIUM_LEASES.user_ttl).await;
    redis.resume();
    a.wait_for_occupants("42", &["1", "2"]).await;
    a.wait_for_update("42", &["1", "2"]).await;
    b.wait_for_update("42", &["1", "2"]).await;
}

#[tokio::test]
async fn an_instance_whose_bus_was_cut_refreshes_the_room() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::start().await;
    let namespace = RedisNamespace::at(redis.url());
    let [a, b] = [(); 2].map(|()| Hub::start_on(&namespace, LONG_LEASES));
    let _one = a.presence.join(&id("42"), &id("1")).await;
    let _two = b.presence.join(&id("42"), &id("2")).await;
    let mut guards = Vec::new();
    for round in 0..5 {
        a.wait_for_update("42", &a.occupants("42").await.iter().map(String::as_str).collect::<Vec<_>>())
            .await;
        let counts = [&a, &b].map(|hub| hub.sink.texts("42").len());
        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        guards.push(b.presence.join(&id("42"), &id(&format!("new:{round}"))).await);
        let people = a.occupants("42").await;
        let people: Vec<&str> = people.iter().map(String::as_str).collect();
        for (hub, count) in [&a, &b].into_iter().zip(counts) {
            wait::until(WAIT_TIMEOUT, async || is_refreshed_after(count, hub, "42")).await;
            hub.wait_for_update("42", &people).await;
        }
    }
}

#[tokio::test]
async fn a_gap_or_a_malformed_announcement_refreshes_the_room() {
    let Some(namespace) = RedisNamespace::shared(Engine::Redis).await else { return };
    let hub = Hub::start_on(&namespace, LONG_LEASES);
    let _one = hub.presence.join(&id("42"), &id("1")).await;
    hub.wait_for_update("42", &["1"]).await;
    let supervisor = bongsu_kernel::task::Supervisor::new();
    let redis = namespace.redis(&supervisor);
    let channel = namespace.channel("42");
    for message in ["1 9000000000000000 8999999999999999 5 2 +2 1,2", "2 of a later version", "nonsense"] {
        let count = hub.sink.texts("42").len();
        let mut command = bongsu_redis::redis::cmd("SPUBLISH");
        command.arg(&channel).arg(message);
        redis.query("test", &channel, &command, bongsu_redis::Repeat::Never).await.unwrap();
        wait::until(WAIT_TIMEOUT, async || is_refreshed_after(count, &hub, "42")).await;
        assert_eq!(
            hub.sink.texts("42").split_off(count),
            [r#"{"onlineUsers":[1],"joined":null,"left":null,"count":1}"#]
        );
    }
    // The invented version is dropped by the refresh: the next change is passed on.
    let _two = hub.presence.join(&id("42"), &id("2")).await;
    hub.wait_for_update("42", &["1", "2"]).await;
    assert_eq!(hub.sink.joins_and_leaves("42", "2"), (1, 0));
    supervisor.shut_down(WAIT_TIMEOUT).await;
}
