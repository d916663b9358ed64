//! Redis is killed and started again, stands still, or is not there yet when a hub starts.

use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Rng, tier, wait};
use serde_json::json;
use tokio::time::{Instant, sleep_until, timeout};

use super::load::{Load, follow, scene};
use super::{Fleet, IN_TIME, LONG, wait_connected};

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
        // A kill between an answer and the next request proves little: only the others count as rounds.
        while landed < rounds && kills < rounds * 20 {
            kills += 1;
            load.go_on(rng.range(20..300)).await;
            let before = load.cut();
            load.fault(&mut rng).await;
            redis.kill9().await;
            redis.restart().await;
            load.go_on(1).await;
            landed += usize::from(load.cut() > before);
        }
        landed
    };
    let landed = scene(name, &fleet, &load, follow(&fleet).await, faults).await;
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
            load.go_on(rng.range(20..300)).await;
            let (before, until) = (load.refused(), Instant::now() + Duration::from_secs(5));
            load.fault(&mut rng).await;
            redis.pause();
            fleet.wait_connected(false).await;
            // How long it stands still is the fault, not a wait for something.
            sleep_until(until).await;
            landed += usize::from(wait::holds_within(LONG, async || load.refused() > before).await);
            redis.resume();
            fleet.wait_connected(true).await;
            load.go_on(1).await;
        }
        landed
    };
    let landed = scene(name, &fleet, &load, follow(&fleet).await, faults).await;
    assert_eq!(landed, rounds, "pauses that requests waited in");
}

#[tokio::test]
async fn hubs_that_start_without_redis_say_so_and_work_when_it_is_there() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    redis.kill9().await;
    // It starts: this waits until it is ready.
    let fleet = Fleet::start(&redis.url()).await;
    let [one, other] = fleet.apis();
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {"n": 1}, "idempotencyKey": "first"});
    for hub in &fleet.hubs {
        wait_connected(hub, false).await;
        let refused = timeout(IN_TIME, Api::new(hub).publish(&event)).await;
        let refused = refused.expect("an answer in time").expect_error(503, "REDIS5001");
        assert!(!refused.header("retry-after").is_empty(), "{:?}", refused.headers);
        // An EventSource gives up for good on anything but 200, so it is let in, and asked to come back.
        let request = Stream::request(hub, "/api/v1/rooms/42/stream").person(7);
        let mut stream = request.open().await.expect("a stream");
        let close = stream.expect_event("system.close", LONG).await.json();
        assert!((3000..3500).contains(&close["code"].as_u64().expect("a code")), "{close}");
        assert_eq!(close["reconnect"], true, "{close}");
        assert!(stream.next_event(LONG).await.is_none(), "it ends after that");
        // Others are told by the status.
        let page = Api::new(hub).person(7).get("/api/v1/rooms/42/events?since=0-0").await;
        page.expect_error(503, "REDIS5001");
    }

    // By now the bus tries less and less often.
    for hub in &fleet.hubs {
        let tries = || hub.log().matches("the bus failed to connect to Redis").count();
        wait::until(LONG, async || tries() >= 3).await;
    }
    redis.restart().await;
    fleet.wait_connected(true).await;
    let id = one.publish(&event).await.expect(200).result()["streamId"].clone();
    // A hub that says it is well lets people in, and keeps nobody waiting for the bus's next try.
    let mut streams = Vec::new();
    for hub in &fleet.hubs {
        let request = Stream::request(hub, "/api/v1/rooms/42/stream").person(7).last_event_id("0-0");
        let mut stream = request.open().await.expect("a stream");
        let first = stream.expect_event("a.b", LONG).await;
        assert_eq!(first.own_id.map(serde_json::Value::from).as_ref(), Some(&id));
        streams.push(stream);
    }
    let ids =
        [one.publish_to(42, "a.b", json!({"n": 2})).await, other.publish_to(42, "a.b", json!({})).await];
    for stream in &mut streams {
        for id in &ids {
            assert_eq!(stream.expect_event("a.b", LONG).await.own_id.as_ref(), Some(id));
        }
    }
}

#[tokio::test]
async fn a_log_that_was_wiped_is_told_to_everybody_who_had_seen_it() {
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
        assert_eq!(stream.expect_event("a.b", LONG).await.own_id.as_ref(), Some(&seen));
    }
    redis.command(&["FLUSHALL"]).await.accepted();
    // Nothing else happens, and they are told all the same.
    for stream in &mut streams {
        assert_eq!(stream.expect_event("system.reset", LONG).await.json()["reason"], "unknown");
    }
    let next = other.publish_to(42, "a.b", json!({"n": 2})).await;
    for stream in &mut streams {
        assert_eq!(stream.expect_event("a.b", LONG).await.own_id.as_ref(), Some(&next));
    }
    let mut back = open(&fleet.hubs[1], &seen).await;
    // Older than the log's first: all that is left follows.
    assert_eq!(back.expect_event("system.reset", LONG).await.json()["reason"], "trimmed");
    assert_eq!(back.expect_event("a.b", LONG).await.own_id, Some(next));
}
