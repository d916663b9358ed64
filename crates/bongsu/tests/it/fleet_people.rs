//! People of a fleet: who is there when a hub is killed, whose streams count, and that nobody who was sent away hears
//! anything more, also when the hub could not hear of it.

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

const SOON: Duration = Duration::from_secs(60);

async fn hub(url: &str, settings: &[(&str, &str)]) -> Hub {
    let builder = Hub::builder(BONGSU).env("REDIS_URL", url).env("RECORDS", "off");
    settings.iter().fold(builder, |builder, (name, value)| builder.env(name, value)).start().await
}

fn listen(hub: &Hub, user: u64) -> Request {
    Stream::request(hub, "/api/v1/rooms/1/stream").person(user)
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

#[tokio::test]
async fn people_of_a_killed_hub_leave_once_and_those_with_another_tab_stay() {
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
    let mut watching = open(listen(&hubs[0], 1).with_presence()).await;
    let _killed_with_it = [open(listen(&hubs[1], 2)).await, open(listen(&hubs[1], 3)).await];
    let other_tab = open(listen(&hubs[2], 2)).await;
    let api = Api::at(&hubs[0].url(""));
    let online = async || api.person(1).get("/api/v1/rooms/1/presence").await.result()["count"].as_u64();
    wait::until(SOON, async || online().await == Some(3)).await;
    hubs[1].kill9().await;
    wait::until(SOON, async || online().await == Some(2)).await;
    let (mut joined, mut left) = (Vec::new(), Vec::new());
    let mut note = async |joined: &mut Vec<Value>, left: &mut Vec<Value>| {
        let update = watching.expect_event("presence.update", SOON).await.json();
        joined.extend(Some(update["joined"].clone()).filter(|person| !person.is_null()));
        left.extend(Some(update["left"].clone()).filter(|person| !person.is_null()));
    };
    while left.is_empty() {
        assert!(joined.len() < 100, "{joined:?} came, and nobody leaves");
        note(&mut joined, &mut left).await;
    }
    drop(other_tab);
    wait::until(SOON, async || online().await == Some(1)).await;
    // A last one, behind which nothing about the others can come any more.
    let _last = open(listen(&hubs[2], 4)).await;
    while !joined.contains(&json!(4)) {
        assert!(
            joined.len() + left.len() < 100,
            "{joined:?} came, {left:?} left, and the last one does not come"
        );
        note(&mut joined, &mut left).await;
    }
    joined.sort_by_key(Value::as_u64);
    assert_eq!(joined, [json!(2), json!(3), json!(4)], "each joins once");
    assert_eq!(left, [json!(3), json!(2)], "each leaves once, and who has another tab later");
}

#[tokio::test]
async fn people_of_a_killed_hub_leave_when_its_lease_ends() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    // Their signs would be good for longer than this test waits for anything.
    let settings = [("PRESENCE_USER_TTL_SECS", "3600"), ("PRESENCE_HASH_TTL_SECS", "7200")];
    let hubs = [hub(&redis.url(), &settings).await, hub(&redis.url(), &settings).await];
    let mut watching = open(listen(&hubs[0], 1).with_presence()).await;
    let _killed_with_it = [open(listen(&hubs[1], 2)).await, open(listen(&hubs[1], 1)).await];
    let elsewhere = Stream::request(&hubs[1], "/api/v1/rooms/elsewhere/stream").person(2);
    let _killed_too = open(elsewhere).await;
    let api = Api::at(&hubs[0].url(""));
    let online = async |room: &str| {
        let answer = api.person(1).get(&format!("/api/v1/rooms/{room}/presence")).await.expect(200);
        answer.result()["count"].as_u64()
    };
    wait::until(SOON, async || (online("1").await, online("elsewhere").await) == (Some(2), Some(1))).await;
    hubs[1].kill9().await;
    let left =
        watching.find_event("that somebody leaves", SOON, |event| !event.json()["left"].is_null()).await;
    assert_eq!((&left.json()["left"], &left.json()["onlineUsers"]), (&json!(2), &json!([1])));
    wait::until(SOON, async || online("elsewhere").await == Some(0)).await;
    // The next that anybody hears of is somebody who comes.
    let _next = open(listen(&hubs[0], 3)).await;
    assert_eq!(watching.expect_event("presence.update", SOON).await.json()["joined"], 3, "each leaves once");
}

#[tokio::test]
async fn people_of_a_hub_that_was_killed_alone_are_gone_when_it_starts_again() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let settings = [("PRESENCE_USER_TTL_SECS", "3600"), ("PRESENCE_HASH_TTL_SECS", "7200")];
    let hub = hub(&redis.url(), &settings).await;
    let _killed_with_it = open(listen(&hub, 2)).await;
    let api = Api::at(&hub.url(""));
    hub.restart().await;
    let mut back = open(listen(&hub, 1).with_presence()).await;
    let is_alone = |update: &Value| update["onlineUsers"] == json!([1]);
    back.find_event("that nobody else is there", SOON, |event| is_alone(&event.json())).await;
    let answer = api.person(1).get("/api/v1/rooms/1/presence").await.expect(200);
    assert_eq!(answer.result()["count"], 1);
}

/// Opens a stream of a person, and gives it if there was a place for it. Whoever is in hears what is published then; who
/// is not is told so before.
async fn enters(api: &Api, hub: &Hub, user: u64) -> Option<Stream> {
    let mut stream = open(listen(hub, user)).await;
    api.publish_to(1, "a.mark", json!({})).await;
    let event = stream.next_event(SOON).await.expect("an event, or why there is none");
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
    let _held = [open(listen(&killed, 7)).await, open(listen(&killed, 7)).await];
    let api = Api::at(&stays.url(""));
    let gets_in = async || enters(&api, &stays, 7).await.is_some();
    assert!(!gets_in().await, "both places are taken, on the other hub");
    killed.kill9().await;
    wait::until(SOON, gets_in).await;
}

#[tokio::test]
async fn the_streams_of_a_hub_that_stood_still_are_counted_anew() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let settings = [("SSE_MAX_CONNECTIONS_PER_USER", "2")];
    let (goes_on, stands) = (hub(&redis.url(), &settings).await, hub(&redis.url(), &settings).await);
    let mut held = [open(listen(&stands, 7)).await, open(listen(&stands, 7)).await];
    stands.send_signal(Signal::STOP);
    // When its lease has ended they are given up, and another one has their place.
    let api = Api::at(&goes_on.url(""));
    let taken = wait::value_within(SOON, || enters(&api, &goes_on, 7));
    let _taken = taken.await.expect("a place");
    stands.send_signal(Signal::CONT);
    for stream in &mut held {
        let close = stream.find_event("an end", SOON, |event| event.event == "system.close").await;
        assert_eq!(close.json()["code"], 3001, "asked to come back, and to be counted");
    }
}

/// Streams of somebody who will be revoked and of somebody who will not; both have heard something.
async fn two_who_hear(api: &Api, hub: &Hub, gone: u64) -> [Stream; 2] {
    let old = Claims::new(gone).iat(tokens::now() - 60).sign();
    let revoked = open(Stream::request(hub, "/api/v1/rooms/1/stream").bearer(&old)).await;
    let mut streams = [revoked, open(listen(hub, 8)).await];
    api.publish_to(1, "a.b", json!({"before": gone})).await;
    for stream in &mut streams {
        assert_eq!(stream.expect_event("a.b", SOON).await.json()["before"], gone);
    }
    streams
}

async fn one_is_ended_and_one_goes_on(revoked: &mut Stream, other: &mut Stream, round: usize) {
    let close = revoked.expect_event("system.close", SOON).await;
    assert_eq!(close.json()["code"], 3502, "round {round}");
    assert_eq!(other.expect_event("a.b", SOON).await.json()["after"], round, "others miss nothing");
}

#[tokio::test]
async fn a_revocation_that_a_hub_was_cut_off_from_comes_before_what_else_it_missed() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let proxy = Proxy::start(redis.addr()).await;
    let (near, far) = (hub(&redis.url(), &[]).await, hub(&format!("redis://{}", proxy.addr()), &[]).await);
    let api = Api::at(&near.url(""));
    for round in 0..tier::size(3, 20) {
        let gone = 1_000 + round as u64;
        let [mut revoked, mut other] = two_who_hear(&api, &far, gone).await;
        proxy.cut();
        api.admin().post(&format!("/api/admin/users/{gone}/revoke"), json!({})).await.expect(200);
        api.publish_to(1, "a.b", json!({"after": round})).await;
        proxy.heal();
        one_is_ended_and_one_goes_on(&mut revoked, &mut other, round).await;
        let health = Api::at(&far.url("")).anonymous();
        wait::until(SOON, async || health.get("/health").await.result()["redisConnected"] == true).await;
    }
}

#[tokio::test]
async fn nobody_who_was_revoked_hears_more_even_if_the_hub_could_not_hear_of_it() {
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
        let [mut revoked, mut other] = two_who_hear(&api, &far, gone).await;
        // It goes on hearing of rooms, over the same wire, and no more of orders.
        far_may(&["resetkeys", "~[^{]*", "~{[^o]*", "resetchannels", "&[^{]*", "&{[^o]*"]).await;
        wait::until(SOON, async || status().await == "degraded").await;
        api.admin().post(&format!("/api/admin/users/{gone}/revoke"), json!({})).await.expect(200);
        api.publish_to(1, "a.b", json!({"after": round})).await;
        for stream in [&mut other, &mut revoked] {
            let early = stream.try_next_event(Duration::from_millis(500)).await;
            assert!(early.is_err(), "told while nobody knew who may hear it: {early:?}");
        }
        far_may(&["allkeys", "allchannels"]).await;
        one_is_ended_and_one_goes_on(&mut revoked, &mut other, round).await;
        wait::until(SOON, async || status().await == "healthy").await;
    }
}
