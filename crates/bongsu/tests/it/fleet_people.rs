//! Presence, connection limits and revocations in a fleet: who is present after a hub was killed, which streams
//! count, and that a revoked person receives no event, even if the hub could not receive the revocation.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::hub::Signal;
use bongsu_testkit::proxy::Proxy;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::{Request, Stream};
use bongsu_testkit::tokens::{self, Claims};
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

async fn hub(url: &str, settings: &[(&str, &str)]) -> Hub {
    let builder = Hub::builder(BONGSU).env("REDIS_URL", url).env("RECORDS", "off");
    settings.iter().fold(builder, |builder, (name, value)| builder.env(name, value)).start().await
}

fn stream_request(hub: &Hub, user: u64) -> Request {
    Stream::request(hub, "/api/v1/rooms/1/stream").person(user)
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

#[tokio::test]
async fn people_of_a_killed_hub_leave_once_unless_they_have_a_stream_elsewhere() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let settings = [("PRESENCE_USER_TTL_SECS", "8"), ("PRESENCE_HASH_TTL_SECS", "16")];
    let hubs = [
        hub(&redis.url(), &settings).await,
        hub(&redis.url(), &settings).await,
        hub(&redis.url(), &settings).await,
    ];
    let mut watching = open(stream_request(&hubs[0], 1).with_presence()).await;
    let _killed_with_it = [open(stream_request(&hubs[1], 2)).await, open(stream_request(&hubs[1], 3)).await];
    let other_tab = open(stream_request(&hubs[2], 2)).await;
    let api = Api::at(&hubs[0].url(""));
    let online = async || api.person(1).get("/api/v1/rooms/1/presence").await.result()["count"].as_u64();
    wait::until(WAIT_TIMEOUT, async || online().await == Some(3)).await;
    hubs[1].kill9().await;
    wait::until(WAIT_TIMEOUT, async || online().await == Some(2)).await;
    let (mut joined, mut left) = (Vec::new(), Vec::new());
    let mut note = async |joined: &mut Vec<Value>, left: &mut Vec<Value>| {
        let update = watching.expect_event("presence.update", WAIT_TIMEOUT).await.json();
        joined.extend(Some(update["joined"].clone()).filter(|person| !person.is_null()));
        left.extend(Some(update["left"].clone()).filter(|person| !person.is_null()));
    };
    while left.is_empty() {
        assert!(joined.len() < 100, "{joined:?} joined, and no person left");
        note(&mut joined, &mut left).await;
    }
    drop(other_tab);
    wait::until(WAIT_TIMEOUT, async || online().await == Some(1)).await;
    // A last person joins, so that no update about the others can follow.
    let _last = open(stream_request(&hubs[2], 4)).await;
    while !joined.contains(&json!(4)) {
        assert!(
            joined.len() + left.len() < 100,
            "{joined:?} joined, {left:?} left, and the last person did not join"
        );
        note(&mut joined, &mut left).await;
    }
    joined.sort_by_key(Value::as_u64);
    assert_eq!(joined, [json!(2), json!(3), json!(4)], "each person must join once");
    assert_eq!(left, [json!(3), json!(2)], "each person must leave once, person 2 last");
}

#[tokio::test]
async fn people_of_a_killed_hub_leave_when_its_lease_ends() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    // The presence leases would last longer than any wait of this test.
    let settings = [("PRESENCE_USER_TTL_SECS", "3600"), ("PRESENCE_HASH_TTL_SECS", "7200")];
    let hubs = [hub(&redis.url(), &settings).await, hub(&redis.url(), &settings).await];
    let mut watching = open(stream_request(&hubs[0], 1).with_presence()).await;
    let _killed_with_it = [open(stream_request(&hubs[1], 2)).await, open(stream_request(&hubs[1], 1)).await];
    let elsewhere = Stream::request(&hubs[1], "/api/v1/rooms/elsewhere/stream").person(2);
    let _killed_too = open(elsewhere).await;
    let api = Api::at(&hubs[0].url(""));
    let online = async |room: &str| {
        let answer = api.person(1).get(&format!("/api/v1/rooms/{room}/presence")).await.expect(200);
        answer.result()["count"].as_u64()
    };
    wait::until(WAIT_TIMEOUT, async || (online("1").await, online("elsewhere").await) == (Some(2), Some(1)))
        .await;
    hubs[1].kill9().await;
    let left = watching
        .find_event("that somebody leaves", WAIT_TIMEOUT, |event| !event.json()["left"].is_null())
        .await;
    assert_eq!((&left.json()["left"], &left.json()["onlineUsers"]), (&json!(2), &json!([1])));
    wait::until(WAIT_TIMEOUT, async || online("elsewhere").await == Some(0)).await;
    // The next update must be about a person who joins.
    let _next = open(stream_request(&hubs[0], 3)).await;
    assert_eq!(
        watching.expect_event("presence.update", WAIT_TIMEOUT).await.json()["joined"],
        3,
        "person 2 must leave once"
    );
}

#[tokio::test]
async fn people_of_a_killed_single_hub_are_not_present_after_its_restart() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let settings = [("PRESENCE_USER_TTL_SECS", "3600"), ("PRESENCE_HASH_TTL_SECS", "7200")];
    let hub = hub(&redis.url(), &settings).await;
    let _killed_with_it = open(stream_request(&hub, 2)).await;
    let api = Api::at(&hub.url(""));
    hub.restart().await;
    let mut back = open(stream_request(&hub, 1).with_presence()).await;
    let is_alone = |update: &Value| update["onlineUsers"] == json!([1]);
    back.find_event("that nobody else is there", WAIT_TIMEOUT, |event| is_alone(&event.json())).await;
    let answer = api.person(1).get("/api/v1/rooms/1/presence").await.expect(200);
    assert_eq!(answer.result()["count"], 1);
}

/// Opens a stream of a person; returns it if it was admitted. An admitted stream receives the event that is published
/// next; a refused one is closed before.
async fn open_within_limit(api: &Api, hub: &Hub, user: u64) -> Option<Stream> {
    let mut stream = open(stream_request(hub, user)).await;
    api.publish_to(1, "a.mark", json!({})).await;
    let event = stream.next_event(WAIT_TIMEOUT).await.expect("an event");
    assert!(["a.mark", "system.close"].contains(&event.event.as_str()), "{event:?}");
    (event.event == "a.mark").then_some(stream)
}

#[tokio::test]
async fn the_streams_of_a_killed_hub_stop_counting_when_its_lease_ends() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let settings = [("SSE_MAX_CONNECTIONS_PER_USER", "2")];
    let (stays, killed) = (hub(&redis.url(), &settings).await, hub(&redis.url(), &settings).await);
    let _held = [open(stream_request(&killed, 7)).await, open(stream_request(&killed, 7)).await];
    let api = Api::at(&stays.url(""));
    let gets_in = async || open_within_limit(&api, &stays, 7).await.is_some();
    assert!(!gets_in().await, "both allowed streams are on the other hub");
    killed.kill9().await;
    wait::until(WAIT_TIMEOUT, gets_in).await;
}

#[tokio::test]
async fn the_streams_of_a_suspended_hub_are_counted_again() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let settings = [("SSE_MAX_CONNECTIONS_PER_USER", "2")];
    let (goes_on, stands) = (hub(&redis.url(), &settings).await, hub(&redis.url(), &settings).await);
    let mut held = [open(stream_request(&stands, 7)).await, open(stream_request(&stands, 7)).await];
    stands.send_signal(Signal::STOP);
    // When the lease of the paused hub has ended, its streams no longer count, and another stream is admitted.
    let api = Api::at(&goes_on.url(""));
    let taken = wait::value_within(WAIT_TIMEOUT, || open_within_limit(&api, &goes_on, 7));
    let _taken = taken.await.expect("an admitted stream");
    stands.send_signal(Signal::CONT);
    for stream in &mut held {
        let close = stream.find_event("an end", WAIT_TIMEOUT, |event| event.event == "system.close").await;
        assert_eq!(close.json()["code"], 3001, "the client must reconnect to be counted");
    }
}

/// Opens a stream of a person who will be revoked and one of a person who will not; both have received an event.
async fn open_two_streams(api: &Api, hub: &Hub, gone: u64) -> [Stream; 2] {
    let old = Claims::new(gone).iat(tokens::now() - 60).sign();
    let revoked = open(Stream::request(hub, "/api/v1/rooms/1/stream").bearer(&old)).await;
    let mut streams = [revoked, open(stream_request(hub, 8)).await];
    api.publish_to(1, "a.b", json!({"before": gone})).await;
    for stream in &mut streams {
        assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.json()["before"], gone);
    }
    streams
}

async fn expect_revoked_and_unaffected(revoked: &mut Stream, other: &mut Stream, round: usize) {
    let close = revoked.expect_event("system.close", WAIT_TIMEOUT).await;
    assert_eq!(close.json()["code"], 3502, "round {round}");
    assert_eq!(
        other.expect_event("a.b", WAIT_TIMEOUT).await.json()["after"],
        round,
        "others must miss no event"
    );
}

#[tokio::test]
async fn a_revocation_missed_while_disconnected_is_applied_before_missed_events() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let proxy = Proxy::start(redis.addr()).await;
    let (near, far) = (hub(&redis.url(), &[]).await, hub(&format!("redis://{}", proxy.addr()), &[]).await);
    let api = Api::at(&near.url(""));
    for round in 0..tier::size(3, 20) {
        let gone = 1_000 + round as u64;
        let [mut revoked, mut other] = open_two_streams(&api, &far, gone).await;
        proxy.cut();
        api.admin().post(&format!("/api/admin/users/{gone}/revoke"), json!({})).await.expect(200);
        api.publish_to(1, "a.b", json!({"after": round})).await;
        proxy.heal();
        expect_revoked_and_unaffected(&mut revoked, &mut other, round).await;
        let health = Api::at(&far.url("")).anonymous();
        wait::until(WAIT_TIMEOUT, async || health.get("/health").await.result()["redisConnected"] == true)
            .await;
    }
}

#[tokio::test]
async fn a_revoked_person_receives_no_event_even_at_a_disconnected_hub() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let far_may = async |what: &[&str]| {
        let words = [&["ACL", "SETUSER", "far", "on", "nopass", "+@all"], what].concat();
        redis.command(&words).await;
    };
    far_may(&["allkeys", "allchannels"]).await;
    let (near, far) =
        (hub(&redis.url(), &[]).await, hub(&format!("redis://far:any@{}", redis.addr()), &[]).await);
    let (api, health) = (Api::at(&near.url("")), Api::at(&far.url("")).anonymous());
    let status = async || health.get("/health").await.result()["status"].clone();
    for round in 0..tier::size(2, 20) {
        let gone = 1_000 + round as u64;
        let [mut revoked, mut other] = open_two_streams(&api, &far, gone).await;
        // The hub still receives the messages of rooms on the same connection, but no access commands.
        far_may(&["resetkeys", "~[^{]*", "~{[^o]*", "resetchannels", "&[^{]*", "&{[^o]*"]).await;
        wait::until(WAIT_TIMEOUT, async || status().await == "degraded").await;
        api.admin().post(&format!("/api/admin/users/{gone}/revoke"), json!({})).await.expect(200);
        api.publish_to(1, "a.b", json!({"after": round})).await;
        for stream in [&mut other, &mut revoked] {
            let early = stream.try_next_event(Duration::from_millis(500)).await;
            assert!(early.is_err(), "delivered without access commands: {early:?}");
        }
        far_may(&["allkeys", "allchannels"]).await;
        expect_revoked_and_unaffected(&mut revoked, &mut other, round).await;
        wait::until(WAIT_TIMEOUT, async || status().await == "healthy").await;
    }
}
