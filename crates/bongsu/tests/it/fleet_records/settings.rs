//! Settings of hubs that share a Redis: a hub with another ROOMS_MODE is refused; other settings that differ are
//! reported in the health of both.

use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::json;

use super::{WAIT_TIMEOUT, can_run, health, hub, is_healthy};
use crate::BONGSU;

#[tokio::test]
async fn a_hub_with_another_rooms_mode_is_refused_and_the_first_keeps_serving() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let first = hub(&redis, &database).env("ROOMS_MODE", "registered").start().await;
    let second = hub(&redis, &database).env("ROOMS_MODE", "open");
    let (status, output) = second.start_expecting_failure().await;
    assert_eq!(status.code(), Some(1), "{output}");
    let lines: Vec<&str> = output.lines().filter(|line| !line.starts_with('{')).collect();
    let [line] = lines[..] else { panic!("not one line: {lines:?}") };
    let address = first.addr().to_string();
    for part in ["bongsu: ", &address, "ROOMS_MODE=registered", "ROOMS_MODE=open"] {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
    is_healthy(&first).await;
    // Once the first hub has ended, the mode can be changed.
    first.terminate().await;
    let changed = hub(&redis, &database).env("ROOMS_MODE", "open").start().await;
    is_healthy(&changed).await;
}

#[tokio::test]
async fn a_hub_that_starts_without_redis_serves_nobody_until_it_has_joined_the_fleet() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let first = hub(&redis, &database).env("ROOMS_MODE", "registered").start().await;
    let api = Api::new(&first);
    api.call("PUT", "/api/v1/rooms/secret", "").await.expect(200);
    api.publish_to("secret", "a.b", json!({"n": 1})).await;
    redis.kill9().await;
    let second = hub(&redis, &database).env("ROOMS_MODE", "open").start().await;
    let events = "/api/v1/rooms/secret/events?since=0-0";
    let stranger = Api::new(&second).person(9);
    stranger.get(events).await.expect_error(503, "REDIS5001");
    redis.restart().await;
    // Requests are refused until the hub itself is refused and ends.
    while let Ok(answer) = stranger.try_call("GET", events, "").await {
        answer.expect_error(503, "REDIS5001");
    }
    wait::until(WAIT_TIMEOUT, async || {
        second.log().contains("the registry refused this instance; shutting down")
    })
    .await;
    // A hub with the same settings as the others is admitted.
    redis.kill9().await;
    let third = hub(&redis, &database).env("ROOMS_MODE", "registered").start().await;
    let person = Api::new(&third).person(9);
    for path in [events, "/ready"] {
        person.get(path).await.expect_error(503, "REDIS5001");
    }
    redis.restart().await;
    wait::until(WAIT_TIMEOUT, async || person.get("/ready").await.status == 200).await;
    person.get(events).await.expect_error(403, "COMMON403");
}

/// Waits until the health of a hub names exactly one setting that differs from the other hub's.
async fn expect_named(hub: &Hub, setting: &str, other: &Hub) {
    let line = format!("fleet: {setting} here differs from that of the instance at {}", other.addr());
    let expected = serde_json::json!([line]);
    wait::until(WAIT_TIMEOUT, async || health(hub).await["degraded"] == expected).await;
    assert_eq!(health(hub).await["status"], "degraded");
    wait::until(WAIT_TIMEOUT, async || hub.log().contains(&line)).await;
}

#[tokio::test]
async fn settings_that_differ_are_named_in_health_and_not_shown_in_redis() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let start = |settings: &[(&str, &str)]| {
        let builder = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("RECORDS", "off");
        settings.iter().fold(builder, |builder: Builder, (name, value)| builder.env(name, value)).start()
    };
    let (types, key) = (("EVENT_TYPES", "hidden.one,hidden.two"), ("ADMIN_API_KEY", "hidden-key"));
    let first = start(&[types, key]).await;
    let same = start(&[("EVENT_TYPES", "hidden.two,hidden.one"), key, ("SSE_MAX_CONNECTIONS", "7")]).await;
    for hub in [&first, &same] {
        is_healthy(hub).await;
    }
    same.terminate().await;
    for (settings, named) in [
        (&[("EVENT_TYPES", "hidden.one"), key][..], "EVENT_TYPES"),
        (&[types, ("ADMIN_API_KEY", "hidden-key,hidden-new")], "ADMIN_API_KEY"),
        (&[types, key, ("STREAM_MAXLEN", "7")], "STREAM_MAXLEN"),
    ] {
        let second = start(settings).await;
        expect_named(&first, named, &second).await;
        expect_named(&second, named, &first).await;
        let stored = redis.command(&["HVALS", "{instances}:about"]).await.to_string();
        assert!(stored.contains(named) && !stored.contains("hidden"), "{stored}");
        second.terminate().await;
        is_healthy(&first).await;
    }
}
