//! How many streams there may be: the next one is told to come back, in the words of whoever asks.

use bongsu_testkit::sse::{End, Item, Stream};
use bongsu_testkit::wait::until;
use bongsu_testkit::{Api, Hub, tokens};
use serde_json::json;

use super::{SOON, both, hub, listen, open, path};
use crate::BONGSU;

/// An EventSource that is one too many gets a stream that says so and ends.
async fn told_to_come_back(mut stream: Stream) {
    let items = stream.read_to_end(SOON).await;
    assert_eq!((stream.status, stream.end()), (200, Some(End::Proper)));
    let [Item::Retry(retry), Item::Event(close)] = &items[..] else { panic!("{items:?}") };
    let data = close.json();
    assert_eq!((close.event.as_str(), &data["code"]), ("system.close", &json!(3004)));
    assert_eq!((&data["reason"], &data["reconnect"]), (&json!("too many for now"), &json!(true)));
    assert_eq!(data["retryMs"].as_u64(), Some(*retry));
    assert_eq!(close.own_id, None);
}

/// Any other client gets a status that it understands.
async fn refused_plainly(api: &Api, room: &str) {
    let answer = api.get(&path(room)).await.expect_error(429, "COMMON429");
    assert!(answer.header("retry-after").parse::<u64>().is_ok_and(|secs| secs > 0));
}

#[tokio::test]
async fn a_person_has_five_streams_and_the_sixth_is_refused_until_one_closes() {
    let hub = hub().await;
    let mut open_streams = Vec::new();
    for n in 0..5 {
        let request = listen(&hub, &format!("room{n}"));
        open_streams.push(open(if n % 2 == 0 { request } else { request.http2() }).await);
    }
    let api = Api::new(&hub).person(7);
    refused_plainly(&api, "a").await;
    refused_plainly(&Api::http2(&hub).person(7), "a").await;
    for request in both(listen(&hub, "a")) {
        told_to_come_back(open(request).await).await;
    }
    // Others are not concerned, and the five go on.
    let _other = open(Stream::request(&hub, &path("a")).person(8)).await;
    until(SOON, async || hub.metrics().await.get("sse_active_connections", &[]) == 6.0).await;
    Api::new(&hub).publish_to("room0", "a.b", json!({})).await;
    open_streams[0].expect_event("a.b", SOON).await;
    for place in [1, 0] {
        // One over HTTP/2, one over HTTP/1.1.
        open_streams.remove(place).close();
        until(SOON, async || hub.metrics().await.get("sse_active_connections", &[]) == 5.0).await;
        open_streams.push(open(listen(&hub, "again")).await);
        refused_plainly(&api, "a").await;
    }
}

#[tokio::test]
async fn the_hub_has_so_many_streams_in_all_and_no_more() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS", 2).start().await;
    let person = |n: u32| Stream::request(&hub, &path("a")).person(n);
    let first = open(person(1)).await;
    let _second = open(person(2).http2()).await;
    for request in both(person(3)) {
        told_to_come_back(open(request).await).await;
    }
    refused_plainly(&Api::at(&hub.url("")).person(3), "a").await;
    first.close();
    until(SOON, async || hub.metrics().await.get("sse_active_connections", &[]) == 1.0).await;
    open(person(3)).await;
}

#[tokio::test]
async fn a_limit_of_zero_is_none() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let mut streams = Vec::new();
    for _ in 0..12 {
        streams.push(open(listen(&hub, "a")).await);
    }
    let answer = Api::new(&hub).publish(json!({"roomId": "a", "eventType": "a.b", "data": {}})).await;
    assert_eq!(answer.expect(200).result()["deliveredTo"], 12);
}

#[tokio::test]
async fn a_person_is_the_same_by_any_credential() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 1).start().await;
    let _first = open(listen(&hub, "a")).await;
    let token = tokens::token(7);
    let api = Api::new(&hub);
    api.raw("GET", &format!("{}?token={token}", path("a")), &[], "").await.expect_error(429, "COMMON429");
    let cookie = format!("access_token={token}");
    api.raw("GET", &path("a"), &[("cookie", &cookie)], "").await.expect_error(429, "COMMON429");
    let ticket = api.person(7).post("/api/v1/stream-tickets", json!({})).await.expect(200);
    let ticket = ticket.result()["ticket"].as_str().unwrap().to_owned();
    api.raw("GET", &format!("{}?ticket={ticket}", path("a")), &[], "").await.expect_error(429, "COMMON429");
}
