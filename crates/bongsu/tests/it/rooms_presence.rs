//! Who is in a room: people come and go, with several tabs, with and without a stream, over all hubs.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const SOON: Duration = Duration::from_secs(60);
const ROOM: &str = "/api/v1/rooms/1";

async fn listen(hub: &Hub, user: u64) -> Stream {
    let request = Stream::request(hub, &format!("{ROOM}/stream")).person(user).with_presence();
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {}", answer.text()))
}

async fn who(api: &Api) -> Vec<u64> {
    let answer = api.person(1).get(&format!("{ROOM}/presence")).await.expect(200);
    let online = answer.result()["onlineUsers"].as_array().unwrap();
    assert_eq!(answer.result()["count"].as_u64(), Some(online.len() as u64));
    for user in online {
        assert!(user["lastSeen"].as_str().is_some_and(|seen| seen.ends_with('Z')), "{user}");
    }
    online.iter().map(|user| user["userId"].as_u64().unwrap()).collect()
}

/// The next change, without its time.
async fn change(stream: &mut Stream) -> Value {
    let event = stream.expect_event("presence.update", SOON).await;
    assert_eq!(event.own_id, None, "nobody comes back to it");
    let mut data = event.json();
    assert!(data["timestamp"].is_string());
    data.as_object_mut().unwrap().remove("timestamp");
    data
}

#[tokio::test]
async fn comings_and_goings_are_told_to_those_who_are_there() {
    let hub = Hub::builder(BONGSU).start().await;
    let (api, other) = (Api::new(&hub), hub.twin().unwrap_or(&hub));
    let mut first = listen(&hub, 3).await;
    assert_eq!(change(&mut first).await, json!({"onlineUsers": [3], "joined": 3, "left": null, "count": 1}));
    let second = listen(other, 4).await;
    assert_eq!(
        change(&mut first).await,
        json!({"onlineUsers": [3, 4], "joined": 4, "left": null, "count": 2})
    );
    let tab = listen(&hub, 4).await;
    assert_eq!(who(&api).await, [3, 4]);
    drop(second);
    api.publish_to(1, "a.b", json!({})).await;
    first.expect_event("a.b", SOON).await;
    drop(tab);
    assert_eq!(change(&mut first).await, json!({"onlineUsers": [3], "joined": null, "left": 4, "count": 1}));
    assert_eq!(who(&api).await, [3]);
    drop(first);
    wait::until(SOON, async || who(&api).await.is_empty()).await;
}

#[tokio::test]
async fn who_has_no_stream_is_there_while_they_say_so() {
    let hub =
        Hub::builder(BONGSU).env("PRESENCE_USER_TTL_SECS", 8).env("PRESENCE_HASH_TTL_SECS", 16).start().await;
    let api = Api::new(&hub);
    let mut watching = listen(&hub, 3).await;
    change(&mut watching).await;
    let beat = api.person(9).post(&format!("{ROOM}/presence/heartbeat"), json!({})).await.expect(200);
    assert_eq!(beat.result(), &json!({"acknowledged": true, "nextInSecs": 4}));
    assert_eq!(change(&mut watching).await["joined"], 9);
    assert_eq!(who(&api).await, [3, 9]);
    assert_eq!(
        change(&mut watching).await,
        json!({"onlineUsers": [3], "joined": null, "left": 9, "count": 1})
    );
    assert_eq!(who(&api).await, [3], "who has a stream stays");
}

#[tokio::test]
async fn a_person_leaves_only_so_many_signs() {
    let hub = Hub::builder(BONGSU).start().await;
    let api = Api::new(&hub);
    let beat = async |user: u64, room: usize| {
        let path = format!("/api/v1/rooms/{room}/presence/heartbeat");
        api.person(user).post(&path, json!({})).await.status
    };
    let mut taken = 0;
    while beat(9, taken).await == 200 {
        taken += 1;
        assert!(taken < 1_000, "nobody counts them");
    }
    assert!(taken >= 120, "{taken} signs are few");
    assert_eq!((beat(9, 1).await, beat(8, 1).await), (429, 200), "others may");
}

#[tokio::test]
async fn presence_needs_the_same_right_as_reading() {
    let hub = Hub::builder(BONGSU).alone().env("ROOMS_MODE", "registered").start().await;
    let api = Api::new(&hub);
    api.call("PUT", ROOM, "").await.expect(200);
    for (path, method) in [("presence", "GET"), ("presence/heartbeat", "POST")] {
        let path = format!("{ROOM}/{path}");
        api.anonymous().call(method, &path, "").await.expect_error(401, "AUTH4001");
        api.person(7).call(method, &path, "").await.expect_error(403, "COMMON403");
        let unknown = path.replace("rooms/1/", "rooms/2/");
        api.person(7).call(method, &unknown, "").await.expect_error(404, "ROOM4041");
        let nobody = path.replace("rooms/1/", "rooms/a%20b/");
        api.person(7).call(method, &nobody, "").await.expect_error(400, "COMMON400");
    }
}
