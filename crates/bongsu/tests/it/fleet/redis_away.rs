//! Redis is killed and restarted, is paused, loses its data, or is not running yet when a hub starts.

use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Rng, tier, wait};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use super::load::{Load, read_staying, run_scenario};
use super::{Fleet, PUBLISH_TIMEOUT, WAIT_TIMEOUT, wait_connected};

#[tokio::test]
async fn a_redis_that_is_killed_and_started_again_costs_nobody_an_event() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "a_redis_that_is_killed_and_started_again_costs_nobody_an_event";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let load = Load::new(fleet.apis());
    let faults = async {
        let (mut landed, mut kills) = (0, 0);
        // A kill between an answer and the next request proves little, so only kills with requests in flight count as
        // rounds.
        while landed < rounds && kills < rounds * 20 {
            kills += 1;
            load.wait_acknowledged(rng.range(20..300)).await;
            let before = load.cut();
            load.wait_for_fault_moment(&mut rng).await;
            redis.kill9().await;
            redis.restart().await;
            load.wait_acknowledged(1).await;
            landed += usize::from(load.cut() > before);
        }
        landed
    };
    let landed = run_scenario(name, &fleet, &load, read_staying(&fleet).await, faults).await;
    assert!(landed >= rounds, "only {landed} kills landed while requests were in flight");
}

#[tokio::test]
async fn a_redis_that_stands_still_is_told_of_and_costs_nobody_an_event() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "a_redis_that_stands_still_is_told_of_and_costs_nobody_an_event";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let load = Load::new(fleet.apis());
    let faults = async {
        let mut landed = 0;
        for _ in 0..rounds {
            load.wait_acknowledged(rng.range(20..300)).await;
            let (before, until) = (load.refused(), Instant::now() + Duration::from_secs(5));
            load.wait_for_fault_moment(&mut rng).await;
            redis.pause();
            fleet.wait_connected(false).await;
            // The length of the pause is the fault itself, not a wait for a condition.
            sleep_until(until).await;
            landed += usize::from(wait::holds_within(WAIT_TIMEOUT, async || load.refused() > before).await);
            redis.resume();
            fleet.wait_connected(true).await;
            load.wait_acknowledged(1).await;
        }
        landed
    };
    let landed = run_scenario(name, &fleet, &load, read_staying(&fleet).await, faults).await;
    assert_eq!(landed, rounds, "pauses that hit requests");
}

#[tokio::test]
async fn hubs_that_start_without_redis_say_so_and_work_when_it_is_there() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    redis.kill9().await;
    // The start succeeds: this waits until the hubs are ready.
    let fleet = Fleet::start(&redis.url()).await;
    let [one, other] = fleet.apis();
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {"n": 1}, "idempotencyKey": "first"});
    for hub in &fleet.hubs {
        wait_connected(hub, false).await;
        let refused = timeout(PUBLISH_TIMEOUT, Api::new(hub).publish(&event)).await;
        let refused = refused.expect("an answer in time").expect_error(503, "REDIS5001");
        assert!(!refused.header("retry-after").is_empty(), "{:?}", refused.headers);
        // An EventSource gives up for good on any status but 200, so the hub opens the stream and asks it to
        // reconnect.
        let request = Stream::request(hub, "/api/v1/rooms/42/stream").person(7);
        let mut stream = request.open().await.expect("a stream");
        let close = stream.expect_event("system.close", WAIT_TIMEOUT).await.json();
        assert!((3000..3500).contains(&close["code"].as_u64().expect("a code")), "{close}");
        assert_eq!(close["reconnect"], true, "{close}");
        assert!(stream.next_event(WAIT_TIMEOUT).await.is_none(), "the stream must end");
        // A request that does not accept an event stream is answered with status 503.
        let page = Api::new(hub).person(7).get("/api/v1/rooms/42/events?since=0-0").await;
        page.expect_error(503, "REDIS5001");
    }

    // By now the bus has increased its retry delay.
    for hub in &fleet.hubs {
        let tries = || hub.log().matches("failed to open a bus connection to Redis").count();
        wait::until(WAIT_TIMEOUT, async || tries() >= 3).await;
    }
    redis.restart().await;
    fleet.wait_connected(true).await;
    let id = one.publish(&event).await.expect(200).result()["streamId"].clone();
    // A hub that reports to be healthy opens streams without waiting for the next retry of the bus.
    let mut streams = Vec::new();
    for hub in &fleet.hubs {
        let request = Stream::request(hub, "/api/v1/rooms/42/stream").person(7).last_event_id("0-0");
        let mut stream = request.open().await.expect("a stream");
        let first = stream.expect_event("a.b", WAIT_TIMEOUT).await;
        assert_eq!(first.own_id.map(serde_json::Value::from).as_ref(), Some(&id));
        streams.push(stream);
    }
    let ids =
        [one.publish_to(42, "a.b", json!({"n": 2})).await, other.publish_to(42, "a.b", json!({})).await];
    for stream in &mut streams {
        for id in &ids {
            assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.as_ref(), Some(id));
        }
    }
}

#[tokio::test]
async fn streams_are_reset_after_the_log_was_wiped() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let [one, other] = fleet.apis();
    let open = async |hub, position: &str| {
        let request = Stream::request(hub, "/api/v1/rooms/42/stream").person(7).last_event_id(position);
        request.open().await.expect("a stream")
    };
    let mut streams = [open(&fleet.hubs[0], "").await, open(&fleet.hubs[1], "").await];
    let seen = one.publish_to(42, "a.b", json!({"n": 1})).await;
    for stream in &mut streams {
        assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.as_ref(), Some(&seen));
    }
    redis.command(&["FLUSHALL"]).await.expect_ok();
    // The streams receive the reset although no event is published.
    for stream in &mut streams {
        assert_eq!(stream.expect_event("system.reset", WAIT_TIMEOUT).await.json()["reason"], "unknown");
    }
    let next = other.publish_to(42, "a.b", json!({"n": 2})).await;
    for stream in &mut streams {
        assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id.as_ref(), Some(&next));
    }
    let mut back = open(&fleet.hubs[1], &seen).await;
    // The position is older than the first entry of the log, so everything in the log follows.
    assert_eq!(back.expect_event("system.reset", WAIT_TIMEOUT).await.json()["reason"], "trimmed");
    assert_eq!(back.expect_event("a.b", WAIT_TIMEOUT).await.own_id, Some(next));
}
