//! Redis away, slow, or back with nothing: streams go on, asking is refused, and everybody is put back.

use std::time::Duration;

use bongsu_kernel::Code;
use bongsu_presence::Options;
use bongsu_testkit::{Engine, Redis, tier, wait};

use crate::store_contract::stage::LONG;
use crate::support::{Hub, PATIENCE, Place, id};

const LEASE: Options = Options { user_ttl: Duration::from_secs(6), hash_ttl: Duration::from_secs(30) };

/// Whether the last that a hub's streams were told is the room as it is, after a doubt.
fn is_refreshed(hub: &Hub, room: &str, told: usize) -> bool {
    let news = hub.streams.updates(room).split_off(told);
    news.iter().any(|update| update.joined.is_none() && update.left.is_none())
}

#[tokio::test]
async fn who_is_here_is_put_back_when_redis_returns_with_nothing() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::builder().setting("appendonly", "no").start().await;
    let place = Place::at(redis.url());
    // Nobody's time is up, so that being put back is not left to chance.
    let [a, b] = [(); 2].map(|()| Hub::on(&place, LONG));
    let room = id("42");
    let _stays = a.presence.joined(&room, &id("1")).await;
    let leaves = a.presence.joined(&room, &id("2")).await;
    let _too = b.presence.joined(&room, &id("3")).await;
    a.tells("42", &["1", "2", "3"]).await;
    redis.kill9().await;

    // Streams that are opened meanwhile are not refused; who asks is.
    let _comes = a.presence.joined(&room, &id("4")).await;
    let _alone = b.presence.joined(&id("43"), &id("4")).await;
    drop(leaves);
    let asked = a.presence.who(&room, None, 1).await.unwrap_err();
    assert_eq!(asked.code(), Code::Redis5001, "{asked}");
    let told = a.presence.heartbeat(&room, &id("5")).await.unwrap_err();
    assert_eq!(told.code(), Code::Redis5001, "{told}");

    redis.restart().await;
    a.sees("42", &["1", "3", "4"]).await;
    b.sees("43", &["4"]).await;
    for hub in [&a, &b] {
        hub.tells("42", &["1", "3", "4"]).await;
    }
    b.tells("43", &["4"]).await;
    // Life goes on.
    let _next = b.presence.joined(&room, &id("6")).await;
    a.tells("42", &["1", "3", "4", "6"]).await;
}

#[tokio::test]
async fn a_hub_that_starts_without_redis_works_when_it_is_there() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::start().await;
    redis.kill9().await;
    let hub = Hub::on(&Place::at(redis.url()), LONG);
    let _one = hub.presence.joined(&id("42"), &id("1")).await;
    let two = hub.presence.joined(&id("42"), &id("2")).await;
    redis.restart().await;
    hub.sees("42", &["1", "2"]).await;
    hub.tells("42", &["1", "2"]).await;
    drop(two);
    hub.tells("42", &["1"]).await;
}

#[tokio::test]
async fn who_expired_while_redis_stood_still_comes_back() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::start().await;
    let place = Place::at(redis.url());
    let [a, b] = [(); 2].map(|()| Hub::on(&place, LEASE));
    let _one = a.presence.joined(&id("42"), &id("1")).await;
    let _two = b.presence.joined(&id("42"), &id("2")).await;
    redis.pause();
    let asked = a.presence.who(&id("42"), None, 1).await.unwrap_err();
    assert_eq!(asked.code(), Code::Redis5001, "{asked}");
    // How long it stands still is the fault, not a wait for something.
    let clock = std::time::Instant::now();
    wait::until(PATIENCE, async || clock.elapsed() > LEASE.user_ttl).await;
    redis.resume();
    a.sees("42", &["1", "2"]).await;
    a.tells("42", &["1", "2"]).await;
    b.tells("42", &["1", "2"]).await;
}

#[tokio::test]
async fn a_hub_whose_bus_was_cut_tells_the_room_as_it_is() {
    if !tier::needs_engine("redis-server") {
        return;
    }
    let redis = Redis::start().await;
    let place = Place::at(redis.url());
    let [a, b] = [(); 2].map(|()| Hub::on(&place, LONG));
    let _one = a.presence.joined(&id("42"), &id("1")).await;
    let _two = b.presence.joined(&id("42"), &id("2")).await;
    let mut guards = Vec::new();
    for round in 0..5 {
        a.tells("42", &a.who("42").await.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let told = [&a, &b].map(|hub| hub.streams.texts("42").len());
        redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
        guards.push(b.presence.joined(&id("42"), &id(&format!("new:{round}"))).await);
        let people = a.who("42").await;
        let people: Vec<&str> = people.iter().map(String::as_str).collect();
        for (hub, told) in [&a, &b].into_iter().zip(told) {
            wait::until(PATIENCE, async || is_refreshed(hub, "42", told)).await;
            hub.tells("42", &people).await;
        }
    }
}

#[tokio::test]
async fn a_message_that_does_not_follow_on_makes_the_hub_ask() {
    let Some(place) = Place::shared(Engine::Redis).await else { return };
    let hub = Hub::on(&place, LONG);
    let _one = hub.presence.joined(&id("42"), &id("1")).await;
    hub.tells("42", &["1"]).await;
    let supervisor = bongsu_kernel::task::Supervisor::new();
    let redis = place.redis(&supervisor);
    let channel = place.channel("42");
    for message in ["1 9000000000000000 8999999999999999 5 2 +2 1,2", "2 of a later version", "nonsense"] {
        let told = hub.streams.texts("42").len();
        let mut command = bongsu_redis::redis::cmd("SPUBLISH");
        command.arg(&channel).arg(message);
        redis.ask("test", &channel, &command, bongsu_redis::Repeat::Never).await.unwrap();
        wait::until(PATIENCE, async || is_refreshed(&hub, "42", told)).await;
        assert_eq!(
            hub.streams.texts("42").split_off(told),
            [r#"{"onlineUsers":[1],"joined":null,"left":null,"count":1}"#]
        );
    }
    // What was made up is forgotten: the next change follows on.
    let _two = hub.presence.joined(&id("42"), &id("2")).await;
    hub.tells("42", &["1", "2"]).await;
    assert_eq!(hub.streams.comings_and_goings("42", "2"), (1, 0));
    supervisor.shut_down(PATIENCE).await;
}
