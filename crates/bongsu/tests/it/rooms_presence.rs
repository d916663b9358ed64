//! Presence in a room: people join and leave, with several tabs, with and without a stream, over all hubs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::ws::WebSocket;
use bongsu_testkit::{Api, Hub, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const ROOM_PATH: &str = "/api/v1/rooms/1";

async fn open_room_stream(hub: &Hub, user: u64) -> Stream {
    open_stream(hub, &format!("{ROOM_PATH}/stream"), user).await
}

async fn open_stream(hub: &Hub, path: &str, user: u64) -> Stream {
    let request = Stream::request(hub, path).person(user).with_presence();
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {}", answer.text()))
}

async fn present_users(api: &Api) -> Vec<u64> {
    let answer = api.person(1).get(&format!("{ROOM_PATH}/presence")).await.expect(200);
    let online = answer.result()["onlineUsers"].as_array().unwrap();
    assert_eq!(answer.result()["count"].as_u64(), Some(online.len() as u64));
    for user in online {
        assert!(user["lastSeen"].as_str().is_some_and(|seen| seen.ends_with('Z')), "{user}");
    }
    online.iter().map(|user| user["userId"].as_u64().unwrap()).collect()
}

/// The next update, without its timestamp.
async fn next_update(stream: &mut Stream) -> Value {
    let event = stream.expect_event("presence.update", WAIT_TIMEOUT).await;
    assert_eq!(event.own_id, None, "presence has no position");
    let mut data = event.json();
    assert!(data["timestamp"].is_string());
    data.as_object_mut().unwrap().remove("timestamp");
    data
}

/// Checks that the first update of a new stream is a snapshot, and reads on until these people are present. On a very
/// busy machine a stream may begin before its own person is counted.
async fn expect_snapshot_and(stream: &mut Stream, people: &[u64]) {
    let first = next_update(stream).await;
    assert!(is_snapshot(&first), "{first}");
    read_until_present(stream, first, people).await;
}

fn is_snapshot(update: &Value) -> bool {
    update["onlineUsers"].is_array() && update["joined"].is_null() && update["left"].is_null()
}

async fn read_until_present(stream: &mut Stream, mut update: Value, people: &[u64]) {
    while update["onlineUsers"] != json!(people) {
        update = next_update(stream).await;
    }
    assert_eq!(update["count"], people.len());
}

#[tokio::test]
async fn every_new_stream_begins_with_the_presence() {
    let hub = Hub::builder(BONGSU).start().await;
    let (api, other) = (Api::new(&hub), hub.twin().unwrap_or(&hub));
    let mut first = open_room_stream(&hub, 3).await;
    expect_snapshot_and(&mut first, &[3]).await;
    let mut second = open_room_stream(other, 4).await;
    expect_snapshot_and(&mut second, &[3, 4]).await;
    read_until_present(&mut first, Value::Null, &[3, 4]).await;
    // A second tab causes no update for other people.
    for hub in [&hub, other] {
        expect_snapshot_and(&mut open_room_stream(hub, 3).await, &[3, 4]).await;
    }
    // The snapshot comes before the missed events.
    api.publish_to(1, "a.b", json!({})).await;
    let path = format!("{ROOM_PATH}/stream?lastEventId=0-0");
    let mut back = open_stream(&hub, &path, 4).await;
    expect_snapshot_and(&mut back, &[3, 4]).await;
    back.expect_event("a.b", WAIT_TIMEOUT).await;
    for stream in [&mut first, &mut second] {
        stream.expect_event("a.b", WAIT_TIMEOUT).await;
    }
}

#[tokio::test]
async fn a_stream_of_several_rooms_begins_with_the_presence_of_each() {
    let hub = Hub::builder(BONGSU).start().await;
    let other = hub.twin().unwrap_or(&hub);
    let mut there = open_room_stream(other, 3).await;
    expect_snapshot_and(&mut there, &[3]).await;
    for _tab in 0..2 {
        let mut stream = open_stream(&hub, "/api/v1/stream?rooms=1,2", 4).await;
        let mut online = [Value::Null, Value::Null];
        while online != [json!([3, 4]), json!([4])] {
            let update = next_update(&mut stream).await;
            let room = &mut online[update["roomId"].as_u64().unwrap() as usize - 1];
            assert!(!room.is_null() || is_snapshot(&update), "{update}");
            *room = update["onlineUsers"].clone();
        }
    }
}

#[tokio::test]
async fn a_subscription_over_a_websocket_begins_with_the_presence() {
    let hub = Hub::builder(BONGSU).start().await;
    let other = hub.twin().unwrap_or(&hub);
    let mut there = open_room_stream(other, 3).await;
    expect_snapshot_and(&mut there, &[3]).await;
    for user in [4, 4, 3] {
        let mut socket = WebSocket::open(&hub, "/api/v1/ws", user).await.with_presence();
        socket.send(&json!({"op": "subscribe", "room": 1})).await;
        assert_eq!(socket.message(WAIT_TIMEOUT).await["event"], "system.subscribed");
        let mut update = socket.message(WAIT_TIMEOUT).await;
        assert!(is_snapshot(&update["data"]), "{update}");
        while !update["data"]["onlineUsers"].as_array().unwrap().contains(&json!(user)) {
            update = socket.message(WAIT_TIMEOUT).await;
        }
        assert_eq!((&update["event"], &update["room"]), (&json!("presence.update"), &json!(1)), "{update}");
        assert_eq!(update.get("id"), None, "presence has no position");
    }
}

#[tokio::test]
async fn a_stream_with_a_service_key_is_not_present() {
    let hub = Hub::builder(BONGSU).start().await;
    let (api, other) = (Api::new(&hub), hub.twin().unwrap_or(&hub));
    let mut there = open_room_stream(&hub, 3).await;
    expect_snapshot_and(&mut there, &[3]).await;
    let observe = async |path: &str, key: &str| {
        let request = Stream::request(other, path).person(9).header("x-internal-key", key).with_presence();
        request.open().await.unwrap_or_else(|answer| panic!("no stream: {}", answer.text()))
    };
    let key = "local_dev_internal_key";
    let mut observer = observe(&format!("{ROOM_PATH}/stream"), key).await;
    expect_snapshot_and(&mut observer, &[3]).await;
    let _many = observe("/api/v1/stream?rooms=1,2", key).await;
    let bearer = format!("Bearer {}", bongsu_testkit::tokens::token(9));
    let headers = [("authorization", bearer.as_str()), ("x-internal-key", key)];
    let mut socket = WebSocket::try_open(&hub, "/api/v1/ws", &headers).await.unwrap().with_presence();
    socket.send(&json!({"op": "subscribe", "room": 1})).await;
    socket.message(WAIT_TIMEOUT).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["data"]["onlineUsers"], json!([3]));
    assert_eq!(present_users(&api).await, [3]);
    // The next update must be about a person who joins.
    let _next = open_room_stream(&hub, 4).await;
    for stream in [&mut there, &mut observer] {
        let update = next_update(stream).await;
        assert_eq!(update, json!({"onlineUsers": [3, 4], "joined": 4, "left": null, "count": 2}));
    }
    let mut known = observe(&format!("{ROOM_PATH}/stream"), "a guess").await;
    expect_snapshot_and(&mut known, &[3, 4, 9]).await;
}

#[tokio::test]
async fn joins_and_leaves_are_sent_to_the_people_present() {
    let hub = Hub::builder(BONGSU).start().await;
    let (api, other) = (Api::new(&hub), hub.twin().unwrap_or(&hub));
    let mut first = open_room_stream(&hub, 3).await;
    expect_snapshot_and(&mut first, &[3]).await;
    let second = open_room_stream(other, 4).await;
    assert_eq!(
        next_update(&mut first).await,
        json!({"onlineUsers": [3, 4], "joined": 4, "left": null, "count": 2})
    );
    let tab = open_room_stream(&hub, 4).await;
    assert_eq!(present_users(&api).await, [3, 4]);
    drop(second);
    api.publish_to(1, "a.b", json!({})).await;
    first.expect_event("a.b", WAIT_TIMEOUT).await;
    drop(tab);
    assert_eq!(
        next_update(&mut first).await,
        json!({"onlineUsers": [3], "joined": null, "left": 4, "count": 1})
    );
    assert_eq!(present_users(&api).await, [3]);
    drop(first);
    wait::until(WAIT_TIMEOUT, async || present_users(&api).await.is_empty()).await;
}

#[tokio::test]
async fn a_person_without_a_stream_is_present_while_heartbeats_arrive() {
    let hub =
        Hub::builder(BONGSU).env("PRESENCE_USER_TTL_SECS", 8).env("PRESENCE_HASH_TTL_SECS", 16).start().await;
    let api = Api::new(&hub);
    let mut watching = open_room_stream(&hub, 3).await;
    expect_snapshot_and(&mut watching, &[3]).await;
    let beat = api.person(9).post(&format!("{ROOM_PATH}/presence/heartbeat"), json!({})).await.expect(200);
    assert_eq!(beat.result(), &json!({"acknowledged": true, "nextInSecs": 4}));
    assert_eq!(next_update(&mut watching).await["joined"], 9);
    assert_eq!(present_users(&api).await, [3, 9]);
    assert_eq!(
        next_update(&mut watching).await,
        json!({"onlineUsers": [3], "joined": null, "left": 9, "count": 1})
    );
    assert_eq!(present_users(&api).await, [3], "a person with a stream must stay");
}

#[tokio::test]
async fn a_large_room_is_listed_page_by_page() {
    let hub = Hub::builder(BONGSU).env("PRESENCE_USER_TTL_SECS", 3_600).env("PRESENCE_HASH_TTL_SECS", 7_200);
    let hub = hub.start().await;
    let api = Api::new(&hub);
    let people = tier::size(210, 2_000) as u64;
    for user in 1..=people {
        api.person(user).post(&format!("{ROOM_PATH}/presence/heartbeat"), json!({})).await.expect(200);
    }
    let page = async |query: &str| {
        let answer = api.person(1).get(&format!("{ROOM_PATH}/presence{query}")).await.expect(200);
        let result = answer.result().clone();
        assert_eq!(result["count"], people, "the count of the whole room");
        let users = result["onlineUsers"].as_array().unwrap().iter();
        let users: Vec<u64> = users.map(|user| user["userId"].as_u64().unwrap()).collect();
        (users, result["nextCursor"].as_str().map(str::to_owned))
    };
    assert_eq!(page("").await.0, (1..=200).collect::<Vec<_>>(), "the default page");
    let (mut listed, mut cursor) = (Vec::new(), Some(String::new()));
    while let Some(after) = cursor {
        let (users, next) = page(&format!("?limit=100&cursor={after}")).await;
        assert!(users.len() <= 100);
        listed.extend(users);
        cursor = next;
    }
    assert_eq!(listed, (1..=people).collect::<Vec<_>>(), "each person once, in order");
    assert_eq!(page("?limit=500").await.1.is_some(), people > 500);
    // The answer with a single page has no cursor.
    api.person(1).post("/api/v1/rooms/2/presence/heartbeat", json!({})).await.expect(200);
    let small = api.person(1).get("/api/v1/rooms/2/presence").await.expect(200);
    assert_eq!(small.result().as_object().unwrap().keys().collect::<Vec<_>>(), ["count", "onlineUsers"]);
    for bad in ["limit=0", "limit=501", "limit=x", "cursor=a%20b"] {
        api.person(1).get(&format!("{ROOM_PATH}/presence?{bad}")).await.expect_error(400, "COMMON400");
    }
}

#[tokio::test]
async fn the_heartbeats_of_a_person_are_limited() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    let beat = async |user: u64, room: usize| {
        let path = format!("/api/v1/rooms/{room}/presence/heartbeat");
        api.person(user).post(&path, json!({})).await.status
    };
    let mut taken = 0;
    while beat(9, taken).await == 200 {
        taken += 1;
        assert!(taken < 1_000, "heartbeats are not limited");
    }
    assert!(taken >= 120, "only {taken} heartbeats were accepted");
    // Some more are allowed every second, but not as many at once.
    let more = join_all((0..10).map(|room| beat(9, room))).await;
    assert!(more.contains(&429), "{more:?}");
    assert_eq!(beat(8, 1).await, 200, "others are not limited");
}

#[tokio::test]
async fn presence_needs_the_same_membership_as_reading() {
    let hub = Hub::builder(BONGSU).alone().env("ROOMS_MODE", "registered").start().await;
    let api = Api::new(&hub);
    api.call("PUT", ROOM_PATH, "").await.expect(200);
    for (path, method) in [("presence", "GET"), ("presence/heartbeat", "POST")] {
        let path = format!("{ROOM_PATH}/{path}");
        api.anonymous().call(method, &path, "").await.expect_error(401, "AUTH4001");
        api.person(7).call(method, &path, "").await.expect_error(403, "COMMON403");
        let unknown = path.replace("rooms/1/", "rooms/2/");
        api.person(7).call(method, &unknown, "").await.expect_error(404, "ROOM4041");
        let nobody = path.replace("rooms/1/", "rooms/a%20b/");
        api.person(7).call(method, &nobody, "").await.expect_error(400, "COMMON400");
    }
}
