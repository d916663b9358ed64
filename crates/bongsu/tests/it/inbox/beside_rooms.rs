//! Rooms and the inbox on one connection, with one composite position, over SSE and over a WebSocket.

use bongsu_testkit::sse::{Event, Request, ResumingClient, Stream};
use bongsu_testkit::ws::{SocketEvent, WebSocket};
use bongsu_testkit::{Api, Hub, Rng, tier};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, hub, like_notification, notify, open, stream_request};
use crate::BONGSU;

fn combined_request(hub: &Hub, rooms: &str) -> Request {
    Stream::request(hub, &format!("/api/v1/stream?rooms={rooms}&inbox=1&lang=en")).person(7)
}

/// The content of an event: its room and number, or `inbox` and the event id of the entry.
fn content_of(event: &Event) -> (Value, Value) {
    let data = event.json();
    match event.event.as_str() {
        "ping" => panic!("no event came for so long that the hub sent a ping"),
        "notification" => (json!("inbox"), data["eventId"].clone()),
        _ => (data["roomId"].clone(), data["n"].clone()),
    }
}

async fn next(stream: &mut Stream, count: usize) -> Vec<(Value, Value)> {
    let events = stream.take_events(count, WAIT_TIMEOUT).await;
    let mut seen: Vec<_> = events.iter().map(content_of).collect();
    seen.sort_by_key(|(of, what)| format!("{of} {what}"));
    seen
}

async fn room_event(api: &Api, room: u64, n: u64) {
    api.publish_to(room, "a.b", json!({ "n": n })).await;
}

#[tokio::test]
async fn events_and_notifications_arrive_on_one_stream_and_one_position_resumes_both() {
    let hub = hub().await;
    let api = Api::new(&hub);
    notify(&api, &like_notification("before", &[7])).await.expect(202);
    let mut stream = open(combined_request(&hub, "1,2")).await;
    let first = stream.expect_event("notification", WAIT_TIMEOUT).await;
    assert!(first.json()["message"].as_str().unwrap().contains("likes your post"), "{}", first.json());
    assert_eq!(first.json()["roomId"], Value::Null, "an entry belongs to no room");
    room_event(&api, 1, 1).await;
    notify(&api, &like_notification("live", &[7, 8])).await.expect(202);
    room_event(&api, 2, 2).await;
    let seen = next(&mut stream, 3).await;
    assert_eq!(seen, [(json!("inbox"), json!("live")), (json!(1), json!(1)), (json!(2), json!(2))]);
    let position = stream.last_event_id().to_owned();
    stream.close();
    room_event(&api, 2, 3).await;
    notify(&api, &like_notification("missed", &[7])).await.expect(202);
    room_event(&api, 1, 4).await;
    let mut back = open(combined_request(&hub, "2,1").last_event_id(&position)).await;
    let seen = next(&mut back, 3).await;
    assert_eq!(seen, [(json!("inbox"), json!("missed")), (json!(1), json!(4)), (json!(2), json!(3))]);
}

#[tokio::test]
async fn a_client_that_drops_before_the_first_inbox_message_gets_it_when_it_reconnects() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let unread = notify(&api, &like_notification("unread", &[7])).await;
    unread.expect(202);
    let mut stream = open(combined_request(&hub, "1")).await;
    let greeted = stream.position(WAIT_TIMEOUT).await;
    stream.close();
    room_event(&api, 1, 1).await;
    let mut back = open(combined_request(&hub, "1").last_event_id(&greeted)).await;
    assert_eq!(next(&mut back, 2).await, [(json!("inbox"), json!("unread")), (json!(1), json!(1))]);
}

#[tokio::test]
async fn clients_that_drop_at_random_see_every_event_and_every_entry_once() {
    let hub = hub().await;
    let (api, mut rng) = (Api::new(&hub), Rng::for_test("beside-rooms"));
    let mut client = ResumingClient::new(combined_request(&hub, "1,2"))
        .max_retry_delay(std::time::Duration::from_millis(50));
    // The client has a position in every subject before the events that count.
    notify(&api, &like_notification("first", &[7])).await.expect(202);
    assert_eq!(content_of(&client.next_event(WAIT_TIMEOUT).await.expect("an event")).1, "first");
    let count = tier::size(40, 400);
    let mut seen = Vec::new();
    for n in 0..count {
        match n % 3 {
            0 => notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202),
            room => {
                api.publish(&json!({"roomId": room, "eventType": "a.b", "data": {"n": n}})).await.expect(200)
            }
        };
        if rng.below(3) == 0 {
            client.break_connection();
        }
        while seen.len() < n + 1 && rng.below(2) == 0 {
            seen.push(content_of(&client.next_event(WAIT_TIMEOUT).await.expect("an event")));
        }
    }
    while seen.len() < count {
        seen.push(content_of(&client.next_event(WAIT_TIMEOUT).await.expect("an event")));
    }
    for (of, expected) in [
        (json!("inbox"), (0..count).step_by(3).map(|n| json!(format!("e{n}"))).collect::<Vec<_>>()),
        (json!(1), (1..count).step_by(3).map(|n| json!(n)).collect()),
        (json!(2), (2..count).step_by(3).map(|n| json!(n)).collect()),
    ] {
        let own: Vec<Value> =
            seen.iter().filter(|(seen, _)| *seen == of).map(|(_, what)| what.clone()).collect();
        assert_eq!(own, expected, "{of}, with {} connections", client.connections());
    }
}

#[tokio::test]
async fn without_rooms_it_is_the_personal_stream() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let path = "/api/v1/stream?inbox=1&lang=en";
    let mut stream = open(Stream::request(&hub, path).person(7)).await;
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    let event = stream.expect_event("notification", WAIT_TIMEOUT).await;
    assert_eq!(event.own_id.as_deref(), Some("1"), "the id must be an inbox sequence");
    stream.close();
    notify(&api, &like_notification("e2", &[7])).await.expect(202);
    let mut back = open(Stream::request(&hub, path).person(7).last_event_id("1")).await;
    assert_eq!(back.expect_event("notification", WAIT_TIMEOUT).await.json()["eventId"], "e2");
}

#[tokio::test]
async fn a_socket_counts_as_a_device_and_closes_when_it_is_replaced() {
    let hub = hub().await;
    let mut combined = open(combined_request(&hub, "1")).await;
    let mut newer = Vec::new();
    for _ in 0..3 {
        newer.push(open(stream_request(&hub, 7)).await);
    }
    combined.expect_event("replaced", WAIT_TIMEOUT).await;
    let close = combined.expect_event("system.close", WAIT_TIMEOUT).await;
    assert_eq!(close.json()["code"], 3500);
    let end = close.own_id.expect("a permanent close has an id");
    let path = format!("/api/v1/stream?rooms=1&inbox=1&lastEventId={end}");
    assert_eq!(Api::new(&hub).person(7).get(&path).await.status, 204);
}

#[tokio::test]
async fn positions_of_another_stream_are_refused_by_name() {
    let hub = hub().await;
    let person = Api::new(&hub).person(7).with_header("accept-language", "en");
    for (query, named) in [
        ("rooms=1&inbox=1&lastEventId=m2!1~7", "the inbox"),
        ("rooms=1&lastEventId=m2!1~7!~3", "the inbox"),
        ("rooms=1&inbox=1&lastEventId=m2!1~7!~3!~4", "the inbox"),
        ("rooms=1&inbox=1&lastEventId=m2!1~7!1~7!~3", "room 1"),
        ("rooms=1&inbox=1&lastEventId=17", "lastEventId"),
        ("inbox=1&lastEventId=m2!1~7!~3", "lastEventId"),
        ("rooms=1&inbox=maybe", "inbox"),
        ("inbox=0", "rooms"),
    ] {
        let answer = person.get(&format!("/api/v1/stream?{query}")).await;
        let message = answer.expect_error(400, "COMMON400").message().to_owned();
        assert!(message.contains(named), "{query}: {message}");
    }
}

#[tokio::test]
async fn a_web_socket_follows_the_inbox_beside_rooms() {
    let hub = hub().await;
    let api = Api::new(&hub);
    notify(&api, &like_notification("unread", &[7])).await.expect(202);
    let mut socket = WebSocket::open(&hub, "/api/v1/ws?lang=en", 7).await;
    socket.send(&json!({"op": "subscribe", "inbox": true})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await, json!({"event": "system.subscribed", "inbox": true}));
    let entry = socket.message(WAIT_TIMEOUT).await;
    assert_eq!(
        (&entry["event"], &entry["id"], &entry["inbox"], &entry["data"]["eventId"]),
        (&json!("notification"), &json!("1"), &json!(true), &json!("unread"))
    );
    assert!(entry["data"]["message"].as_str().unwrap().contains("likes your post"), "{entry}");
    let position = json!({"event": "system.position", "id": "1", "inbox": true});
    assert_eq!(socket.message(WAIT_TIMEOUT).await, position);
    socket.send(&json!({"op": "subscribe", "room": 1})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["event"], "system.subscribed");
    room_event(&api, 1, 1).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["data"]["n"], 1);
    notify(&api, &like_notification("live", &[7])).await.expect(202);
    assert_eq!(socket.message(WAIT_TIMEOUT).await["data"]["eventId"], "live");
    socket.send(&json!({"op": "unsubscribe", "inbox": true})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await, json!({"event": "system.unsubscribed", "inbox": true}));
    notify(&api, &like_notification("missed", &[7])).await.expect(202);
    socket.send(&json!({"op": "subscribe", "inbox": true, "since": "2"})).await;
    assert_eq!(
        socket.message(WAIT_TIMEOUT).await,
        json!({"event": "system.subscribed", "id": "2", "inbox": true})
    );
    assert_eq!(socket.message(WAIT_TIMEOUT).await["data"]["eventId"], "missed");
    for (request, inbox) in [
        (json!({"op": "subscribe", "inbox": true, "room": 1}), None),
        (json!({"op": "subscribe", "inbox": false}), None),
        (json!({"op": "subscribe", "inbox": "yes"}), None),
        (json!({"op": "subscribe", "inbox": true, "since": "1-0"}), Some(true)),
        (json!({"op": "subscribe", "inbox": true, "since": 3}), Some(true)),
    ] {
        socket.send(&request).await;
        let refused = socket.message(WAIT_TIMEOUT).await;
        assert_eq!(
            (&refused["event"], &refused["code"]),
            (&json!("error"), &json!("COMMON400")),
            "{request}"
        );
        assert_eq!(refused.get("inbox"), inbox.map(Value::from).as_ref(), "{request}");
    }
    let mut newer = Vec::new();
    for _ in 0..3 {
        newer.push(open(stream_request(&hub, 7)).await);
    }
    assert!(
        matches!(socket.next(WAIT_TIMEOUT).await, SocketEvent::Closed(3500, _)),
        "the socket must be replaced"
    );
}

#[tokio::test]
async fn the_room_limit_of_a_socket_does_not_exclude_the_inbox() {
    let hub = Hub::builder(BONGSU).records().start().await;
    let mut socket = WebSocket::open(&hub, "/api/v1/ws", 7).await;
    for room in 0..32 {
        socket.send(&json!({"op": "subscribe", "room": room})).await;
        assert_eq!(socket.message(WAIT_TIMEOUT).await["event"], "system.subscribed");
    }
    socket.send(&json!({"op": "subscribe", "inbox": true})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["event"], "system.subscribed");
}
