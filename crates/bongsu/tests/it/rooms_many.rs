//! One stream for several rooms: events carry their room, and one composite position covers all rooms.

use std::collections::HashMap;
use std::time::Duration;

use bongsu_testkit::sse::{Request, Stream};
use bongsu_testkit::{Api, Hub};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn stream_request(hub: &Hub, rooms: &str) -> Request {
    Stream::request(hub, &format!("/api/v1/stream?rooms={rooms}")).person(7)
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

/// The rooms and numbers of the next `count` events.
async fn next(stream: &mut Stream, count: usize) -> Vec<(Value, u64)> {
    let events = stream.take_events(count, WAIT_TIMEOUT).await;
    events
        .iter()
        .map(|event| (event.json()["roomId"].clone(), event.json()["n"].as_u64().unwrap_or(0)))
        .collect()
}

#[tokio::test]
async fn events_of_all_rooms_arrive_with_their_room() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    let mut stream = open(stream_request(&hub, "1,lobby,1,3")).await;
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    assert_eq!(next(&mut stream, 1).await, [(json!(1), 1)]);
    api.publish_to("lobby", "a.b", json!({"n": 2, "roomId": "forged"})).await;
    api.publish_to(2, "a.b", json!({"n": 3})).await;
    api.publish_to(3, "a.b", json!({})).await;
    assert_eq!(next(&mut stream, 2).await, [(json!("lobby"), 2), (json!(3), 0)]);
}

#[tokio::test]
async fn a_client_comes_back_to_where_it_was_in_every_room() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    let mut stream = open(stream_request(&hub, "1,2")).await;
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    api.publish_to(2, "a.b", json!({"n": 2})).await;
    next(&mut stream, 2).await;
    let place = stream.last_event_id().to_owned();
    stream.close();
    for n in 3..=6 {
        api.publish_to(1 + n % 2, "a.b", json!({"n": n})).await;
    }
    let mut back = open(stream_request(&hub, "2,1").last_event_id(&place)).await;
    let mut missed = next(&mut back, 4).await;
    missed.sort_by_key(|(_, n)| *n);
    assert_eq!(missed, [(json!(2), 3), (json!(1), 4), (json!(2), 5), (json!(1), 6)]);
    back.close();
    let mut wider = open(stream_request(&hub, "1,2,3").last_event_id(&place)).await;
    assert_eq!(next(&mut wider, 4).await.len(), 4, "an added room must begin live");
    let mut all = open(stream_request(&hub, "1,2").last_event_id("0-0")).await;
    assert_eq!(next(&mut all, 6).await.len(), 6);
}

#[tokio::test]
async fn a_client_that_drops_before_the_first_event_misses_none() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    let mut stream = open(stream_request(&hub, "1,2")).await;
    let place = stream.position(WAIT_TIMEOUT).await;
    stream.close();
    api.publish_to(2, "a.b", json!({"n": 2})).await;
    api.publish_to(1, "a.b", json!({"n": 3})).await;
    let mut back = open(stream_request(&hub, "1,2").last_event_id(&place)).await;
    let mut seen = next(&mut back, 2).await;
    seen.sort_by_key(|(_, n)| *n);
    assert_eq!(seen, [(json!(2), 2), (json!(1), 3)]);
}

#[tokio::test]
async fn only_the_room_whose_position_is_unknown_is_reset() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    let mut stream = open(stream_request(&hub, "1,2").last_event_id("0-0")).await;
    next(&mut stream, 1).await;
    let place = stream.last_event_id().to_owned();
    stream.close();
    let other = Hub::builder(BONGSU).start().await;
    Api::new(&other).publish_to(2, "a.b", json!({"n": 2})).await;
    let mut lost = open(stream_request(&other, "1,2").last_event_id(&place)).await;
    let first = lost.take_events(2, WAIT_TIMEOUT).await;
    let reset = first.iter().find(|event| event.event == "system.reset").expect("a reset");
    assert_eq!(reset.json(), json!({"reason": "unknown", "roomId": 1}));
    assert!(first.iter().any(|event| event.json()["n"] == 2), "the other room must go on");
}

/// Room names with equal 32-bit FNV-1a hashes, by which an earlier position format named rooms.
const EQUAL_HASHES: [&str; 2] = ["room-112789", "room-349192"];

#[tokio::test]
async fn a_client_that_drops_after_every_event_never_confuses_two_rooms() {
    let hub = Hub::builder(BONGSU).env("SSE_MAX_CONNECTIONS_PER_USER", 0).start().await;
    let (api, rooms) = (Api::new(&hub), EQUAL_HASHES.join(","));
    let mut stream = open(stream_request(&hub, &rooms)).await;
    let mut place = stream.position(WAIT_TIMEOUT).await;
    stream.close();
    // Publishes until both rooms have an event with the same id, so that the position of one room is valid in the
    // other.
    let mut count = 0;
    loop {
        count += 1;
        assert!(count < 10_000, "no two events have the same id");
        let events =
            EQUAL_HASHES.map(|room| json!({"roomId": room, "eventType": "a.b", "data": {"n": count}}));
        let answer = api.publish_batch(&events).await.expect(200);
        if answer.result()["results"][0]["streamId"] == answer.result()["results"][1]["streamId"] {
            break;
        }
    }
    let mut seen: HashMap<String, Vec<u64>> = HashMap::new();
    for _ in 0..2 * count {
        let mut stream = open(stream_request(&hub, &rooms).last_event_id(&place)).await;
        let event = stream.next_event(WAIT_TIMEOUT).await.expect("an event");
        assert_eq!(event.event, "a.b", "{}", event.data);
        let room = event.json()["roomId"].as_str().expect("a room").to_owned();
        seen.entry(room).or_default().push(event.json()["n"].as_u64().expect("a number"));
        place = stream.last_event_id().to_owned();
    }
    for room in EQUAL_HASHES {
        assert_eq!(seen[room], (1..=count).collect::<Vec<_>>(), "{room}");
    }
}

#[tokio::test]
async fn positions_of_an_earlier_version_are_reset_and_the_stream_goes_on() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    let mut stream = open(stream_request(&hub, "1,2").last_event_id("m1.nzyjsj~lsod0jk0.nmzqyo~1")).await;
    let resets = stream.take_events(2, WAIT_TIMEOUT).await;
    let mut rooms: Vec<Value> = resets.iter().map(|event| event.json()["roomId"].clone()).collect();
    rooms.sort_by_key(Value::as_u64);
    assert!(resets.iter().all(|event| event.event == "system.reset" && event.json()["reason"] == "unknown"));
    assert_eq!(rooms, [json!(1), json!(2)]);
    let place = stream.last_event_id().to_owned();
    stream.close();
    api.publish_to(2, "a.b", json!({"n": 2})).await;
    let mut back = open(stream_request(&hub, "1,2").last_event_id(&place)).await;
    assert_eq!(next(&mut back, 1).await, [(json!(2), 2)], "the event after the reset");
}

#[tokio::test]
async fn thirty_two_rooms_with_the_longest_names_are_resumed_by_their_position() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    let rooms: Vec<String> = (0..32).map(|n| format!("{n:r>128}")).collect();
    let all = rooms.join(",");
    let mut stream = open(stream_request(&hub, &all)).await;
    for room in &rooms {
        api.publish_to(room, "a.b", json!({"n": 1})).await;
    }
    next(&mut stream, rooms.len()).await;
    let place = stream.last_event_id().to_owned();
    stream.close();
    assert!(place.len() < 2_048, "{} bytes", place.len());
    for (n, room) in (2..).zip(&rooms) {
        api.publish_to(room, "a.b", json!({"n": n})).await;
    }
    // One room fewer, one room more, in another order.
    let others: Vec<&str> = rooms.iter().skip(1).rev().map(String::as_str).chain(["other"]).collect();
    let mut back = open(stream_request(&hub, &others.join(",")).last_event_id(&place)).await;
    api.publish_to("other", "a.b", json!({"n": 99})).await;
    let mut missed: Vec<u64> = next(&mut back, 32).await.into_iter().map(|(_, n)| n).collect();
    missed.sort_unstable();
    assert_eq!(missed, (3..34).chain([99]).collect::<Vec<_>>());
}

#[tokio::test]
async fn an_invalid_list_of_rooms_is_refused_by_name() {
    let hub = Hub::builder(BONGSU).start().await;
    let person = Api::new(&hub).person(7);
    let many = (0..33).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    for rooms in ["", "1,,2", "a%20b", many.as_str(), "%C3%A4"] {
        let answer = person.get(&format!("/api/v1/stream?rooms={rooms}")).await;
        let answer = answer.expect_error(400, "COMMON400");
        assert!(answer.text().contains("rooms"), "{}", answer.text());
    }
    person.get("/api/v1/stream").await.expect_error(400, "COMMON400");
    for position in ["x", "1-0", "m1x", "m2.1~1", "m2!1", "m2!1~1~1~1"] {
        let answer = person.get(&format!("/api/v1/stream?rooms=1&lastEventId={position}")).await;
        let answer = answer.expect_error(400, "COMMON400");
        assert!(answer.text().contains("lastEventId"), "{}", answer.text());
    }
    let ended = person.get("/api/v1/stream?rooms=1&lastEventId=end.3501.m2!1~1").await;
    assert_eq!(ended.status, 204);
    Api::new(&hub).anonymous().get("/api/v1/stream?rooms=1").await.expect_error(401, "AUTH4001");
}

#[tokio::test]
async fn clients_that_drop_at_random_see_every_event_of_every_room_once_in_order() {
    const ROOMS: u64 = 5;
    const EVENTS: u64 = 400;
    let hub = Hub::builder(BONGSU)
        .env("SSE_MAX_CONNECTIONS_PER_USER", 0)
        .env("SSE_CHANNEL_CAPACITY", 8)
        .start()
        .await;
    let api = Api::new(&hub);
    let publish = async {
        for n in 1..=EVENTS {
            api.publish_to(n % ROOMS, "a.b", json!({"n": n})).await;
        }
    };
    let follow = (0..6_u64).map(async |client| {
        let (mut seen, mut place): (HashMap<u64, Vec<u64>>, _) = (HashMap::new(), "0-0".to_owned());
        let mut count = 0;
        while count < EVENTS {
            let mut stream = open(stream_request(&hub, "0,1,2,3,4").last_event_id(&place)).await;
            for _ in 0..1 + (count * 7 + client * 13) % 40 {
                if count == EVENTS {
                    break;
                }
                let event = stream.next_event(WAIT_TIMEOUT).await.expect("an event");
                let data = event.json();
                seen.entry(data["roomId"].as_u64().unwrap_or(99))
                    .or_default()
                    .push(data["n"].as_u64().unwrap_or(0));
                count += 1;
            }
            place = stream.last_event_id().to_owned();
            stream.close();
        }
        for room in 0..ROOMS {
            let expected: Vec<u64> = (1..=EVENTS).filter(|n| n % ROOMS == room).collect();
            assert_eq!(seen[&room], expected, "client {client}, room {room}");
        }
    });
    futures_util::future::join(publish, futures_util::future::join_all(follow)).await;
}
