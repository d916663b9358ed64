//! Load: long catch-ups that meet the live edge, large events, and many rooms without subscribers.

use bongsu_testkit::{Api, proof};
use serde_json::{Value, json};

use super::{EVENT_TYPE, WAIT_TIMEOUT, hub, numbers, open, over_both_protocols, publish, stream_request};

/// Publishes all events; returns how many were acknowledged.
async fn publish_many(api: &Api, events: &[Value]) -> usize {
    let mut acknowledged = 0;
    for part in events.chunks(500) {
        let answer = api.publish_batch(part).await.expect(200);
        let results = answer.result()["results"].as_array().cloned().unwrap_or_default();
        assert!(results.len() == part.len() && results.iter().all(|result| result["streamId"].is_string()));
        acknowledged += results.len();
    }
    acknowledged
}

#[tokio::test]
async fn a_long_catch_up_continues_with_live_events_without_a_gap() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let event = |n: u64| json!({"roomId": "a", "eventType": EVENT_TYPE, "data": {"n": n}});
    publish_many(&api, &(1..=2_000).map(event).collect::<Vec<_>>()).await;
    for (request, last) in over_both_protocols(stream_request(&hub, "a").last_event_id("0-0"))
        .into_iter()
        .zip([2_100_u64, 2_200])
    {
        let mut stream = open(request).await;
        // These events are published while the client reads.
        let (seen, _) = tokio::join!(
            numbers(&mut stream, usize::try_from(last).unwrap()),
            publish(&api, "a", last - 99..=last)
        );
        assert_eq!(seen, (1..=last).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn big_events_are_caught_up_in_bounded_memory() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let text = "가".repeat(20_000);
    let event = |n: u64| json!({"roomId": "a", "eventType": EVENT_TYPE, "data": {"n": n, "text": text}});
    publish_many(&api, &(1..=60).map(event).collect::<Vec<_>>()[..]).await;
    // From the log alone: a new process has empty ring buffers.
    hub.restart().await;
    let api = Api::new(&hub);
    let before = hub.rss_kib();
    let mut streams = Vec::new();
    for person in 0..8 {
        let request = bongsu_testkit::sse::Stream::request(&hub, &super::path("a")).person(person);
        streams.push(open(request.last_event_id("0-0")).await);
    }
    api.publish_to("a", EVENT_TYPE, json!({"n": 61, "text": "live"})).await;
    let mut log_bytes = 0;
    for stream in &mut streams {
        let events = stream.take_events(61, WAIT_TIMEOUT).await;
        let seen: Vec<u64> = events.iter().filter_map(|event| event.json()["n"].as_u64()).collect();
        assert_eq!(seen, (1..=61).collect::<Vec<_>>());
        log_bytes = events[..60].iter().map(|event| event.data.len()).sum();
    }
    let grown = hub.peak_rss_kib().saturating_sub(before);
    let facts = json!({"readers": streams.len(), "logKiB": log_bytes / 1024, "grownKiB": grown});
    proof::record("rooms", "big-catch-up", &facts);
    assert!(grown < 24 * 1024, "readers of 3.5 MiB each took too much: {facts}");
}

#[tokio::test]
async fn thousands_of_rooms_that_nobody_listens_to_cost_nothing() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut stream = open(stream_request(&hub, "watched")).await;
    let event = |n: u64| json!({"roomId": format!("room-{n}"), "eventType": EVENT_TYPE, "data": {"n": n}});
    publish_many(&api, &(0..500).map(event).collect::<Vec<_>>()).await;
    let (before, files) = (hub.rss_kib(), hub.open_files());
    let rooms = publish_many(&api, &(500..5_500).map(event).collect::<Vec<_>>()).await;
    let grown = hub.rss_kib().saturating_sub(before);
    proof::record("rooms", "idle-rooms", json!({"rooms": rooms, "grownKiB": grown}));
    assert!(grown < 16 * 1024, "{rooms} rooms took {grown} KiB");
    assert!(hub.open_files() <= files + 4);
    let metrics = hub.metrics().await;
    assert_eq!(metrics.get("sse_active_rooms", &[]), 1.0);
    assert_eq!(metrics.get("sse_active_connections", &[]), 1.0);
    api.publish_to("watched", EVENT_TYPE, json!({"n": 1})).await;
    assert_eq!(numbers(&mut stream, 1).await, [1]);
    // Rooms are no longer active once their last stream is gone.
    stream.close();
    bongsu_testkit::wait::until(WAIT_TIMEOUT, async || {
        hub.metrics().await.get("sse_active_rooms", &[]) == 0.0
    })
    .await;
}
