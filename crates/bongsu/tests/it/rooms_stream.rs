//! The stream of a room: its frames, the position at which it begins, its end, its limits, and its memory.

mod ends;
mod limits;
mod load;
mod position;
mod socket;

use std::time::Duration;

use bongsu_testkit::sse::{Item, Request, Stream};
use bongsu_testkit::{Api, Hub};
use serde_json::{Value, json};

use crate::BONGSU;

/// Longer than any message takes to arrive.
const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// The event type of these tests.
const EVENT_TYPE: &str = "comment.created";

async fn hub() -> Hub {
    Hub::builder(BONGSU).start().await
}

fn path(room: &str) -> String {
    format!("/api/v1/rooms/{room}/stream")
}

/// A request for a stream of this room for person 7.
fn stream_request(hub: &Hub, room: &str) -> Request {
    Stream::request(hub, &path(room)).person(7)
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

/// Publishes `{"n": ..}` for these numbers; returns the ids of the events.
async fn publish(api: &Api, room: &str, numbers: std::ops::RangeInclusive<u64>) -> Vec<String> {
    let mut ids = Vec::new();
    for n in numbers {
        ids.push(api.publish_to(room, EVENT_TYPE, json!({ "n": n })).await);
    }
    ids
}

/// The numbers of the next `count` events, which must all be of type `EVENT_TYPE`.
async fn numbers(stream: &mut Stream, count: usize) -> Vec<u64> {
    let events = stream.take_events(count, WAIT_TIMEOUT).await;
    events
        .iter()
        .map(|event| {
            assert_eq!(event.event, EVENT_TYPE, "{event:?}");
            event.json()["n"].as_u64().unwrap_or(u64::MAX)
        })
        .collect()
}

/// The request over HTTP/1.1 and over HTTP/2.
fn over_both_protocols(request: Request) -> [Request; 2] {
    [request.clone(), request.http2()]
}

#[tokio::test]
async fn a_frame_has_the_type_the_id_and_the_data_with_our_timestamp() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for request in over_both_protocols(stream_request(&hub, "42")) {
        let mut stream = open(request).await;
        let event = json!({"roomId": 42, "eventType": "retrospect.submitted", "publisherId": 1,
            "data": {"userName": "김철수", "nested": {"timestamp": "kept"}, "timestamp": "yesterday", "n": 1.50}});
        let answer = api.publish(&event).await.expect(200);
        let seen = stream.expect_event("retrospect.submitted", WAIT_TIMEOUT).await;
        assert_eq!(seen.own_id.as_deref(), answer.result()["streamId"].as_str());
        let mut data = seen.json();
        let ours = data["timestamp"].take();
        let ours = ours.as_str().unwrap();
        assert!(ours.starts_with("20") && ours.ends_with('Z') && ours.contains('T'), "{ours}");
        let mut published = event["data"].clone();
        published["timestamp"] = Value::Null;
        assert_eq!(data, published);
        assert!(!seen.data.contains("yesterday"), "{}", seen.data);
    }
}

#[tokio::test]
async fn a_stream_has_the_content_type_and_headers_against_buffering() {
    let hub = hub().await;
    for request in over_both_protocols(stream_request(&hub, "a")) {
        let stream = open(request).await;
        let header = |name: &str| stream.headers.get(name).and_then(|value| value.to_str().ok());
        assert_eq!(stream.status, 200);
        assert_eq!(header("content-type"), Some("text/event-stream"));
        assert_eq!(header("cache-control"), Some("no-cache"));
        assert_eq!(header("x-accel-buffering"), Some("no"));
    }
}

#[tokio::test]
async fn a_stream_begins_with_its_reconnect_delay() {
    let hub = hub().await;
    let mut stream = open(stream_request(&hub, "a")).await;
    match stream.next(WAIT_TIMEOUT).await {
        Some(Item::Retry(ms)) => assert!((100..=10_000).contains(&ms), "{ms}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn without_a_position_a_stream_begins_with_what_comes_next() {
    let hub = hub().await;
    let api = Api::new(&hub);
    publish(&api, "a", 1..=3).await;
    for (request, n) in over_both_protocols(stream_request(&hub, "a")).into_iter().zip([4, 5]) {
        let mut stream = open(request).await;
        publish(&api, "a", n..=n).await;
        assert_eq!(numbers(&mut stream, 1).await, [n]);
    }
}

#[tokio::test]
async fn a_stream_receives_only_events_of_its_room() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut stream = open(stream_request(&hub, "Room")).await;
    publish(&api, "room", 1..=1).await;
    publish(&api, "Room2", 2..=2).await;
    publish(&api, "Room", 3..=3).await;
    assert_eq!(numbers(&mut stream, 1).await, [3]);
}

#[tokio::test]
async fn the_publish_answer_counts_the_listening_streams() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let told = async || {
        let event = json!({"roomId": "a", "eventType": EVENT_TYPE, "data": {}});
        api.publish(event).await.expect(200).result()["deliveredTo"].as_u64()
    };
    assert_eq!(told().await, Some(0));
    let first = open(stream_request(&hub, "a")).await;
    let _second = open(stream_request(&hub, "a").http2()).await;
    let _elsewhere = open(stream_request(&hub, "b")).await;
    assert_eq!(told().await, Some(2));
    first.close();
    bongsu_testkit::wait::until(WAIT_TIMEOUT, async || told().await == Some(1)).await;
}

#[tokio::test]
async fn an_idle_stream_sends_keepalives_and_a_busy_one_does_not() {
    let hub = Hub::builder(BONGSU).env("SSE_KEEPALIVE_SECS", 1).start().await;
    let api = Api::new(&hub);
    for request in over_both_protocols(stream_request(&hub, "a")) {
        let mut silent = open(request).await;
        let mut comments = 0;
        while comments < 2 {
            match silent.next(WAIT_TIMEOUT).await {
                Some(Item::Comment(text)) => {
                    assert_eq!(text, "keepalive");
                    comments += 1;
                }
                Some(Item::Retry(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let mut busy = open(stream_request(&hub, "b")).await;
    // A comment is allowed only if the stream was silent, because this test or the hub was held up.
    let (mut comments, mut longest_silence, mut last) = (0, Duration::ZERO, tokio::time::Instant::now());
    for n in 0..25 {
        // Reads until no item arrives for 100 ms, before the next event is published.
        for _ in 0..100 {
            match busy.try_next(Duration::from_millis(100)).await {
                Err(_) => break,
                Ok(Some(Item::Comment(_))) => comments += 1,
                Ok(Some(_)) => {}
                Ok(None) => panic!("the stream ended"),
            }
        }
        let before = std::mem::replace(&mut last, tokio::time::Instant::now());
        api.publish_to("b", EVENT_TYPE, json!({ "n": n })).await;
        longest_silence = longest_silence.max(before.elapsed());
    }
    let may_comment = longest_silence > Duration::from_millis(800);
    assert!(comments == 0 || may_comment, "{comments} comments, and no silence over {longest_silence:?}");
}
