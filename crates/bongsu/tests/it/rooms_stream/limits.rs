//! Connection limits: a stream over the limit is refused in the form that its client understands, and may come back
//! later.

use bongsu_testkit::sse::{End, Item, Stream};
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, Hub, tokens};
use serde_json::json;

use super::{WAIT_TIMEOUT, hub, open, over_both_protocols, path, stream_request};
use crate::BONGSU;

/// Checks that an EventSource over the limit gets a stream that asks it to reconnect and ends.
async fn expect_retry_later(mut stream: Stream) {
    let items = stream.read_to_end(WAIT_TIMEOUT).await;
    assert_eq!((stream.status, stream.end()), (200, Some(End::Proper)));
    let [Item::Retry(retry), Item::Event(close)] = &items[..] else { panic!("{items:?}") };
    let data = close.json();
    assert_eq!((close.event.as_str(), &data["code"]), ("system.close", &json!(3004)));
    assert_eq!((&data["reason"], &data["reconnect"]), (&json!("too many for now"), &json!(true)));
    assert_eq!(data["retryMs"].as_u64(), Some(*retry));
    assert_eq!(close.own_id, None);
}

/// Checks that a client other than an EventSource gets status 429 with Retry-After.
async fn expect_429(api: &Api, room: &str) {
    let answer = api.get(&path(room)).await.expect_error(429, "COMMON429");
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|secs| secs > 0));
}

#[tokio::test]
async fn a_person_has_five_streams_and_the_sixth_is_refused_until_one_closes() {
    let hub = hub().await;
    let mut open_streams = Vec::new();
    for n in 0..5 {
        let request = stream_request(&hub, &format!("room{n}"));
        open_streams.push(open(if n % 2 == 0 { request } else { request.http2() }).await);
    }
    let api = Api::new(&hub).person(7);
    expect_429(&api, "a").await;
    expect_429(&Api::http2(&hub).person(7), "a").await;
    for request in over_both_protocols(stream_request(&hub, "a")) {
        expect_retry_later(open(request).await).await;
    }
    // Other people are not affected, and the five streams stay open.
    let _other = open(Stream::request(&hub, &path("a")).person(8)).await;
    until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) == 6.0).await;
    Api::new(&hub).publish_to("room0", "a.b", json!({})).await;
    open_streams[0].expect_event("a.b", WAIT_TIMEOUT).await;
    for place in [1, 0] {
        // One over HTTP/2, one over HTTP/1.1.
        open_streams.remove(place).close();
        until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) == 5.0).await;
        open_streams.push(open(stream_request(&hub, "again")).await);
        expect_429(&api, "a").await;
    }
}

#[tokio::test]
async fn the_total_number_of_streams_is_limited() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS", 2).start().await;
    let person = |n: u32| Stream::request(&hub, &path("a")).person(n);
    let first = open(person(1)).await;
    let _second = open(person(2).http2()).await;
    for request in over_both_protocols(person(3)) {
        expect_retry_later(open(request).await).await;
    }
    expect_429(&Api::at(&hub.url("")).person(3), "a").await;
    first.close();
    until(WAIT_TIMEOUT, async || hub.metrics().await.get("sse_active_connections", &[]) == 1.0).await;
    open(person(3)).await;
}

#[tokio::test]
async fn a_limit_of_zero_means_no_limit() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let mut streams = Vec::new();
    for _ in 0..12 {
        streams.push(open(stream_request(&hub, "a")).await);
    }
    let answer = Api::new(&hub).publish(json!({"roomId": "a", "eventType": "a.b", "data": {}})).await;
    assert_eq!(answer.expect(200).result()["deliveredTo"], 12);
}

#[tokio::test]
async fn every_credential_identifies_the_same_person() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 1).start().await;
    let _first = open(stream_request(&hub, "a")).await;
    let token = tokens::token(7);
    let api = Api::new(&hub);
    api.raw("GET", &format!("{}?token={token}", path("a")), &[], "").await.expect_error(429, "COMMON429");
    let cookie = format!("access_token={token}");
    api.raw("GET", &path("a"), &[("cookie", &cookie)], "").await.expect_error(429, "COMMON429");
    let ticket = api.person(7).post("/api/v1/stream-tickets", json!({})).await.expect(200);
    let ticket = ticket.result()["ticket"].as_str().unwrap().to_owned();
    api.raw("GET", &format!("{}?ticket={ticket}", path("a")), &[], "").await.expect_error(429, "COMMON429");
}
