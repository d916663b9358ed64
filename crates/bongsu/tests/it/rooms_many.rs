//! One stream for several rooms: their events with the room they are from, one position for all of them.

use std::collections::HashMap;
use std::time::Duration;

use bongsu_testkit::sse::{Request, Stream};
use bongsu_testkit::{Api, Hub};
use serde_json::{Value, json};

use crate::BONGSU;

const SOON: Duration = Duration::from_secs(60);

fn listen(hub: &Hub, rooms: &str) -> Request {
    Stream::request(hub, &format!("/api/v1/stream?rooms={rooms}")).person(7)
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

/// The rooms and numbers of the next so many events.
async fn next(stream: &mut Stream, count: usize) -> Vec<(Value, u64)> {
    let events = stream.take_events(count, SOON).await;
    events
        .iter()
        .map(|event| (event.json()["roomId"].clone(), event.json()["n"].as_u64().unwrap_or(0)))
        .collect()
}

#[tokio::test]
async fn events_of_all_rooms_arrive_with_their_room() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    let mut stream = open(listen(&hub, "1,lobby,1,3")).await;
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
    let mut stream = open(listen(&hub, "1,2")).await;
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    api.publish_to(2, "a.b", json!({"n": 2})).await;
    next(&mut stream, 2).await;
    let place = stream.last_event_id().to_owned();
    stream.close();
    for n in 3..=6 {
        api.publish_to(1 + n % 2, "a.b", json!({"n": n})).await;
    }
    let mut back = open(listen(&hub, "2,1").last_event_id(&place)).await;
    let mut missed = next(&mut back, 4).await;
    missed.sort_by_key(|(_, n)| *n);
    assert_eq!(missed, [(json!(2), 3), (json!(1), 4), (json!(2), 5), (json!(1), 6)]);
    back.close();
    let mut wider = open(listen(&hub, "1,2,3").last_event_id(&place)).await;
    assert_eq!(next(&mut wider, 4).await.len(), 4, "a room more begins with what comes next");
    let mut all = open(listen(&hub, "1,2").last_event_id("0-0")).await;
    assert_eq!(next(&mut all, 6).await.len(), 6);
}

#[tokio::test]
async fn who_drops_before_the_first_event_misses_none() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    let mut stream = open(listen(&hub, "1,2")).await;
    let place = stream.position(SOON).await;
    stream.close();
    api.publish_to(2, "a.b", json!({"n": 2})).await;
    api.publish_to(1, "a.b", json!({"n": 3})).await;
    let mut back = open(listen(&hub, "1,2").last_event_id(&place)).await;
    let mut seen = next(&mut back, 2).await;
    seen.sort_by_key(|(_, n)| *n);
    assert_eq!(seen, [(json!(2), 2), (json!(1), 3)]);
}

#[tokio::test]
async fn a_room_that_lost_the_place_is_reset_alone() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    api.publish_to(1, "a.b", json!({"n": 1})).await;
    let mut stream = open(listen(&hub, "1,2").last_event_id("0-0")).await;
    next(&mut stream, 1).await;
    let place = stream.last_event_id().to_owned();
    stream.close();
    let other = Hub::builder(BONGSU).start().await;
    Api::new(&other).publish_to(2, "a.b", json!({"n": 2})).await;
    let mut lost = open(listen(&other, "1,2").last_event_id(&place)).await;
    let first = lost.take_events(2, SOON).await;
    let reset = first.iter().find(|event| event.event == "system.reset").expect("a reset");
    assert_eq!(reset.json(), json!({"reason": "unknown", "roomId": 1}));
    assert!(first.iter().any(|event| event.json()["n"] == 2), "the other room goes on");
}

#[tokio::test]
async fn what_is_no_list_of_rooms_is_refused_by_name() {
    let hub = Hub::builder(BONGSU).start().await;
    let person = Api::new(&hub).person(7);
    let many = (0..33).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
    for rooms in ["", "1,,2", "a%20b", many.as_str(), "%C3%A4"] {
        let answer = person.get(&format!("/api/v1/stream?rooms={rooms}")).await;
        let answer = answer.expect_error(400, "COMMON400");
        assert!(answer.text().contains("rooms"), "{}", answer.text());
    }
    person.get("/api/v1/stream").await.expect_error(400, "COMMON400");
    for position in ["x", "1-0", "m1.", "m2.1~1", "m1.1~1~1~1"] {
        let answer = person.get(&format!("/api/v1/stream?rooms=1&lastEventId={position}")).await;
        let answer = answer.expect_error(400, "COMMON400");
        assert!(answer.text().contains("lastEventId"), "{}", answer.text());
    }
    let ended = person.get("/api/v1/stream?rooms=1&lastEventId=end.3501.m1.1~1").await;
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
            let mut stream = open(listen(&hub, "0,1,2,3,4").last_event_id(&place)).await;
            for _ in 0..1 + (count * 7 + client * 13) % 40 {
                if count == EVENTS {
                    break;
                }
                let event = stream.next_event(SOON).await.expect("an event");
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
