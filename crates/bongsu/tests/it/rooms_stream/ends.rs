//! How a stream ends: the hub sends the reason, and whether to reconnect.

use std::time::Duration;

use bongsu_testkit::sse::{End, Item, ResumingClient, Stream};
use bongsu_testkit::tokens::Claims;
use bongsu_testkit::{Api, Hub, wait};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, hub, open, over_both_protocols, path, publish, stream_request};
use crate::BONGSU;

const STREAM_LIFETIME: Duration = Duration::from_secs(600);

async fn hub_with_lifetime() -> Hub {
    Hub::builder(BONGSU).movable_clock().env("SSE_LIFETIME_SECS", STREAM_LIFETIME.as_secs()).start().await
}

/// The last event of a stream, and the retry delay that came with it.
async fn ending(stream: &mut Stream) -> (bongsu_testkit::sse::Event, Option<u64>) {
    let items = stream.read_to_end(WAIT_TIMEOUT).await;
    assert_eq!(stream.end(), Some(End::Proper));
    let retry = items.iter().rev().find_map(|item| if let Item::Retry(ms) = item { Some(*ms) } else { None });
    match items.into_iter().rfind(|item| !matches!(item, Item::Retry(_))) {
        Some(Item::Event(event)) => (event, retry),
        other => panic!("the stream ended with {other:?}"),
    }
}

#[tokio::test]
async fn a_stream_at_its_maximum_age_is_asked_to_reconnect() {
    let hub = hub_with_lifetime().await;
    let api = Api::new(&hub);
    for request in over_both_protocols(stream_request(&hub, "a")) {
        let mut stream = open(request).await;
        let id = publish(&api, "a", 1..=1).await.remove(0);
        hub.move_clock(STREAM_LIFETIME).await;
        let (last, retry) = ending(&mut stream).await;
        assert_eq!(last.event, "system.close");
        let data = last.json();
        assert_eq!(
            (&data["code"], &data["reason"], &data["reconnect"]),
            (&json!(3001), &json!("lifetime reached"), &Value::Bool(true))
        );
        assert_eq!(data["retryMs"].as_u64(), retry, "retryMs and the retry field differ");
        assert_eq!((last.own_id, last.id), (None, id), "the position must not move");
    }
}

#[tokio::test]
async fn a_client_that_was_asked_to_come_back_misses_nothing_meanwhile() {
    let hub = hub_with_lifetime().await;
    let api = Api::new(&hub);
    publish(&api, "a", 1..=1).await;
    let mut client = ResumingClient::new(stream_request(&hub, "a")).starting_after("0-0");
    let (mut seen, mut last) = (Vec::new(), 1);
    while client.connections() < 3 || seen.last() != Some(&3) {
        assert!(client.connections() < 20, "the client reconnected too often and received {seen:?}");
        let event = client.next_event(WAIT_TIMEOUT).await.unwrap();
        match event.event.as_str() {
            // No client is connected now, so the client must catch up on this event.
            "system.close" if last < 3 => {
                last += 1;
                publish(&api, "a", last..=last).await;
            }
            "system.close" => {}
            _ => {
                seen.push(event.json()["n"].as_u64().unwrap());
                hub.move_clock(STREAM_LIFETIME).await;
            }
        }
    }
    assert_eq!(seen, [1, 2, 3]);
}

#[tokio::test]
async fn a_client_that_came_back_before_its_first_event_misses_nothing_meanwhile() {
    let hub = hub_with_lifetime().await;
    let api = Api::new(&hub);
    publish(&api, "a", 1..=3).await;
    // From the client's view it was connected all the time; only its stream was replaced by another one.
    let mut client = ResumingClient::new(stream_request(&hub, "a"));
    let streams = async || hub.metrics().await.get("sse_active_connections", &[]) == 1.0;
    let (close, ()) = tokio::join!(client.next_event(WAIT_TIMEOUT), async {
        wait::until(WAIT_TIMEOUT, streams).await;
        hub.move_clock(STREAM_LIFETIME).await;
    });
    assert_eq!(close.unwrap().event, "system.close");
    publish(&api, "a", 4..=4).await;
    while client.connections() < 2 {
        match client.try_next_event(WAIT_TIMEOUT).await.unwrap() {
            Some(event) if event.event == "system.close" => {}
            Some(event) => return assert_eq!(event.json()["n"], 4),
            None => panic!("the client was stopped by {:?}", client.stopped_by()),
        }
    }
    panic!("the event that was published while the client came back was never sent");
}

#[tokio::test]
async fn a_stream_that_closes_before_the_first_event_has_a_position() {
    let hub = Hub::builder(BONGSU).movable_clock().start().await;
    let token = Claims::new(7).expires_in(600).sign();
    let mut stream = Stream::request(&hub, &path("empty")).bearer(&token).open().await.unwrap();
    hub.move_clock(Duration::from_secs(600)).await;
    let close = stream.expect_event("system.close", WAIT_TIMEOUT).await;
    // Not `0-0`, which would mean the oldest event that is left, without a reset.
    assert_eq!(close.own_id.as_deref(), Some("end.3502.0-1"));
}

#[tokio::test]
async fn a_stream_closes_when_its_token_expires_and_the_client_does_not_reconnect() {
    let hub = Hub::builder(BONGSU).movable_clock().start().await;
    let api = Api::new(&hub);
    let id = publish(&api, "a", 1..=1).await.remove(0);
    for (request, lifetime) in
        over_both_protocols(Stream::request(&hub, &path("a"))).into_iter().zip([600, 1_200])
    {
        let token = Claims::new(7).expires_in(lifetime).sign();
        let mut client = ResumingClient::new(request.bearer(&token)).starting_after("0-0");
        assert_eq!(client.next_event(WAIT_TIMEOUT).await.unwrap().id, id);
        hub.move_clock(Duration::from_secs(600)).await;
        let last = client.next_event(WAIT_TIMEOUT).await.unwrap();
        assert_eq!(last.event, "system.close");
        let data = last.json();
        assert_eq!(
            (&data["code"], &data["reason"], &data["reconnect"]),
            (&json!(3502), &json!("token expired or revoked"), &Value::Bool(false))
        );
        assert_eq!(last.own_id, Some(format!("end.3502.{id}")));
        assert_eq!(client.next_event(WAIT_TIMEOUT).await, None);
        assert_eq!((client.connections(), client.stopped_by().unwrap().status), (1, 204));
    }
}

#[tokio::test]
async fn a_permanently_closed_stream_is_answered_204_to_any_caller() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let expired = Claims::new(7).expires_in(-60).sign();
    let position = [("last-event-id", "end.3502.1708070400000-0")];
    for path in [path("a"), path("not a room").replace(' ', "%20")] {
        let answer = api.raw("GET", &path, &position, "").await.expect(204);
        assert!(answer.bytes.is_empty());
    }
    let request = Stream::request(&hub, &path("a")).header("last-event-id", "end.3502.0-0");
    for request in over_both_protocols(request.bearer(&expired)) {
        assert_eq!(request.open().await.err().unwrap().status, 204);
    }
    api.anonymous().get(&format!("{}?lastEventId=end.3500.1-0", path("a"))).await.expect(204);
}

#[tokio::test]
async fn a_permanent_error_keeps_its_status_for_an_event_source() {
    let hub = hub().await;
    let request = |path: &str| Stream::request(&hub, path);
    let cases = [
        (request(&path("a")).person(7).last_event_id("nonsense"), 400, "COMMON400"),
        (request(&path("a%20b")).person(7), 400, "COMMON400"),
        (request(&path("a")), 401, "AUTH4001"),
        (request(&path("a")).bearer("forged"), 401, "AUTH4001"),
        (request("/api/v1/rooms/a/streams").person(7), 404, "COMMON404"),
    ];
    for (request, status, code) in cases {
        for request in over_both_protocols(request) {
            request.open().await.err().unwrap().expect_error(status, code);
        }
    }
    // 403: a change by cookie from a foreign page.
    let token = Claims::new(7).sign();
    let cookie = format!("access_token={token}");
    let headers = [("accept", "text/event-stream"), ("cookie", &cookie), ("origin", "https://evil.example")];
    let answer = Api::new(&hub).raw("POST", "/api/v1/stream-tickets", &headers, "").await;
    answer.expect_error(403, "COMMON403");
}
