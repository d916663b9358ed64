//! Edge cases: a hub with as many streams as it can have, a room that was empty, a database file that is gone, a
//! token that expires.
//!
//! Each of them was once a way to lose an event without a notice.

use std::time::Duration;

use bongsu_testkit::sse::{Request, Stream};
use bongsu_testkit::tokens::Claims;
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::json;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_hub_at_its_stream_limit_still_accepts_publishes_and_requests() {
    let limit = ["prlimit", "--nofile=300:300"].map(str::to_owned).to_vec();
    let hub = Hub::builder(crate::BONGSU).wrapper(limit).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let (api, mut open) = (Api::new(&hub), Vec::new());
    let refused = loop {
        let mut stream = Stream::request(&hub, "/api/v1/rooms/1/stream").person(1).open().await.expect("200");
        match stream.try_next_event(Duration::from_millis(50)).await {
            Ok(Some(event)) => break event.json(),
            Ok(None) => panic!("a stream ended without `system.close`"),
            Err(_) => open.push(stream),
        }
        assert!(open.len() < 300, "more streams than descriptors");
    };
    assert_eq!(refused["code"], 3004);
    api.publish_to(1, "edge.reached", json!({})).await;
    api.anonymous().get("/health").await.expect(200);
    let mut inside = 0;
    for stream in &mut open {
        // On a busy machine some refused streams were taken for open ones, because their refusal arrived late.
        let event = stream.next_event(WAIT_TIMEOUT).await.expect("an event");
        match event.event.as_str() {
            "edge.reached" => inside += 1,
            "system.close" => assert_eq!(event.json()["code"], 3004),
            _ => panic!("{event:?}"),
        }
    }
    assert!(inside > 100, "only {inside} streams were admitted");
}

#[tokio::test]
async fn a_client_of_an_empty_room_is_reset_if_its_first_events_were_trimmed() {
    // A ring buffer of one event, so that memory does not hide the trimming of the log.
    let hub =
        Hub::builder(crate::BONGSU).env("STREAM_MAXLEN", 10).env("SSE_CHANNEL_CAPACITY", 1).start().await;
    let api = Api::new(&hub);
    let request = || Request::new(hub.addr(), "/api/v1/rooms/1/stream").person(1);
    let mut stream = request().open().await.expect("200");
    let place = stream.position(WAIT_TIMEOUT).await;
    stream.close();
    let few = json!({"roomId": 1, "eventType": "edge.reached", "data": {}});
    api.publish(&few).await.expect(200);
    let mut back = request().last_event_id(&place).open().await.expect("200");
    assert_eq!(
        back.next_event(WAIT_TIMEOUT).await.expect("an event").event,
        "edge.reached",
        "no event was trimmed"
    );
    back.close();
    api.publish_batch(&vec![few; 100]).await.expect(200);
    let mut late = request().last_event_id(&place).open().await.expect("200");
    let reset = late.expect_event("system.reset", WAIT_TIMEOUT).await;
    assert_eq!(reset.json()["reason"], "trimmed");
    assert_eq!(reset.own_id, None, "a reset must not move the position");
    late.expect_event("edge.reached", WAIT_TIMEOUT).await;
}

#[tokio::test]
async fn a_room_without_events_is_dropped_with_its_last_stream() {
    let hub = Hub::builder(crate::BONGSU).start().await;
    let (api, rounds) = (Api::new(&hub), tier::size(8, 400));
    for round in 0..rounds {
        let rooms: Vec<String> = (0..32).map(|room| format!("looked-{round}-{room}")).collect();
        let many = format!("/api/v1/stream?rooms={}", rooms.join(","));
        let one = format!("/api/v1/rooms/single-{round}/stream");
        let mut open = Vec::new();
        for path in [&many, &one, &one] {
            open.push(Stream::request(&hub, path).person(round).open().await.expect("200"));
        }
        let metrics = hub.metrics().await;
        assert_eq!((metrics.get("live_subjects", &[]), metrics.get("sse_active_rooms", &[])), (33.0, 33.0));
        api.person(1).get(&format!("/api/v1/rooms/page-{round}/events?since=0-0")).await.expect(200);
        open.into_iter().for_each(Stream::close);
        // A stream is counted until its subjects are dropped, so the first reading without streams must show no
        // subject.
        let left = wait::value_within(WAIT_TIMEOUT, async || {
            let metrics = hub.metrics().await;
            (metrics.get("sse_active_connections", &[]) == 0.0).then(|| metrics.get("live_subjects", &[]))
        });
        let left = left.await;
        assert_eq!(left, Some(0.0), "rooms without streams and events");
    }
}

#[tokio::test]
async fn no_event_is_accepted_after_the_database_file_was_removed() {
    if !bongsu_testkit::engine::needs_embedded("it takes the file away") {
        return;
    }
    let hub = Hub::builder(crate::BONGSU).start().await;
    let api = Api::new(&hub);
    api.publish_to(1, "edge.reached", json!({})).await;
    std::fs::rename(hub.data_dir().join("bongsu.db"), hub.data_dir().join("moved.db")).unwrap();
    let event = json!({"roomId": 1, "eventType": "edge.reached", "data": {}});
    api.publish(&event).await.expect_error(500, "NOTIF5001");
    let health = api.anonymous().get("/health").await.expect(200);
    assert_eq!(health.result()["status"], "degraded");
    std::fs::rename(hub.data_dir().join("moved.db"), hub.data_dir().join("bongsu.db")).unwrap();
    api.publish(&event).await.expect(200);
    wait::until(WAIT_TIMEOUT, async || api.anonymous().get("/health").await.result()["status"] == "healthy")
        .await;
}

#[tokio::test]
async fn a_folder_has_one_hub_even_if_its_lock_file_was_removed() {
    if !bongsu_testkit::engine::needs_embedded("it is about the data folder") {
        return;
    }
    let hub = Hub::builder(crate::BONGSU).start().await;
    std::fs::remove_file(hub.data_dir().join("lock")).unwrap();
    let (status, output) =
        Hub::builder(crate::BONGSU).data_dir(hub.data_dir()).start_expecting_failure().await;
    assert_eq!(status.code(), Some(3), "{output}");
    Api::new(&hub).publish_to(1, "edge.reached", json!({})).await;
}

#[tokio::test]
async fn a_ticket_expires_with_the_token_that_issued_it() {
    let hub = Hub::builder(crate::BONGSU).movable_clock().start().await;
    let token = Claims::new(1).expires_in(10).sign();
    let api = Api::new(&hub).bearer(&token);
    let answer = api.post("/api/v1/stream-tickets", json!({})).await.expect(200);
    let ticket = answer.result()["ticket"].as_str().expect("a ticket").to_owned();
    // Without the expiring token the ticket would be valid for 30 s.
    hub.move_clock(Duration::from_secs(10)).await;
    wait::until(WAIT_TIMEOUT, async || api.get("/api/v1/rooms/1/events?since=0-0").await.status == 401).await;
    let path = format!("/api/v1/rooms/1/stream?ticket={ticket}&lastEventId=0-0");
    let refused = Request::new(hub.addr(), &path).open().await.err().expect("a refusal");
    assert_eq!(refused.status, 401);
}
