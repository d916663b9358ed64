//! The scenarios of the original project's integration and load tests that concern rooms, on two hubs. Locks are
//! tested in the coordination crate, write-behind in the inbox tests.

use std::time::Duration;

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Hub, Rng, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use super::{Fleet, WAIT_TIMEOUT, health, hub};

const STREAM_PATH: &str = "/api/v1/rooms/42/stream";
const PRESENCE_PATH: &str = "/api/v1/rooms/42/presence";

#[tokio::test]
async fn pub_sub_fan_out_a_published_event_reaches_subscribers_on_both_instances() {
    let Some((_redis, fleet)) = start().await else { return };
    let mut streams = [open(&fleet.hubs[0], "").await, open(&fleet.hubs[1], "").await];
    for api in fleet.apis() {
        let answer = api
            .publish(json!({"roomId": 42, "eventType": "retrospect.submitted", "data": {"userId": 1}}))
            .await
            .expect(200);
        assert_eq!(answer.result()["deliveredTo"], 2, "{}", answer.text());
        for stream in &mut streams {
            let event = stream.expect_event("retrospect.submitted", WAIT_TIMEOUT).await;
            assert_eq!(event.own_id.map(Value::from).as_ref(), Some(&answer.result()["streamId"]));
        }
    }
}

#[tokio::test]
async fn streams_xadd_xrange_events_after_a_position_are_found() {
    let Some((redis, fleet)) = start().await else { return };
    let [one, other] = fleet.apis();
    let mut ids = Vec::new();
    for n in 0..10 {
        ids.push(one.publish_to(42, "comment.created", json!({"n": n})).await);
    }
    // The test reads the log from Redis directly, as other programs do.
    let stored = redis.command(&["XRANGE", "room:events:42", "-", "+"]).await;
    let names: Vec<&str> = stored.items().iter().map(|entry| entry.items()[0].text()).collect();
    assert_eq!(names, ids);
    let fields: Vec<&str> = stored.items()[3].items()[1].items().iter().map(|field| field.text()).collect();
    let value = |name: &str| fields.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
    assert_eq!((value("type"), value("payload")), (Some("comment.created"), Some("{\"n\":3}")));
    assert!(value("publisher_id").is_some() && value("timestamp").is_some(), "{fields:?}");
    // A person reads the log through the API.
    let path = format!("/api/v1/rooms/42/events?since={}&count=4", ids[2]);
    let page = other.person(7).get(&path).await.expect(200).result().clone();
    let found: Vec<&str> =
        page["events"].as_array().unwrap().iter().map(|event| event["id"].as_str().unwrap()).collect();
    assert_eq!(found, ids[3..7]);
    assert_eq!((&page["hasMore"], &page["lastId"]), (&json!(true), &json!(ids[6])));
}

#[tokio::test]
async fn presence_heartbeat_a_sign_of_life_counts_for_its_time_and_is_gone_afterwards() {
    let Some(redis) = redis().await else { return };
    let start = async || {
        let hub = hub(&redis.url()).env("PRESENCE_USER_TTL_SECS", 8).env("PRESENCE_HASH_TTL_SECS", 16);
        hub.start().await
    };
    let fleet = Fleet { hubs: [start().await, start().await] };
    let [one, other] = fleet.apis();
    one.person(9).post(&format!("{PRESENCE_PATH}/heartbeat"), json!({})).await.expect(200);
    assert_eq!(redis.command(&["HEXISTS", "presence:42", "9"]).await.integer(), 1);
    let left = redis.command(&["PTTL", "presence:42"]).await.integer();
    assert!((1..=16_000).contains(&left), "{left}");
    let present = async || other.person(7).get(PRESENCE_PATH).await.expect(200).result()["count"].clone();
    assert_eq!(present().await, 1);
    wait::until(WAIT_TIMEOUT, async || present().await == 0).await;
    wait::until(WAIT_TIMEOUT, async || redis.command(&["EXISTS", "presence:42"]).await.integer() == 0).await;
}

#[tokio::test]
async fn sse_catch_up_a_stream_begins_with_the_events_after_its_position() {
    let Some((_redis, fleet)) = start().await else { return };
    let [one, other] = fleet.apis();
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(one.publish_to(42, "like.toggled", json!({"n": n})).await);
    }
    let mut streams = [open(&fleet.hubs[0], &ids[1]).await, open(&fleet.hubs[1], &ids[1]).await];
    ids.push(other.publish_to(42, "like.toggled", json!({"n": 5})).await);
    for stream in &mut streams {
        for id in &ids[2..] {
            assert_eq!(stream.expect_event("like.toggled", WAIT_TIMEOUT).await.own_id.as_ref(), Some(id));
        }
    }
}

#[tokio::test]
async fn cleanup_on_disconnect_a_stream_that_ended_is_counted_no_more() {
    let Some((_redis, fleet)) = start().await else { return };
    let [one, other] = fleet.apis();
    let event = json!({"roomId": 42, "eventType": "member.joined", "data": {}});
    let audience = async || other.publish(&event).await.expect(200).result()["deliveredTo"].clone();
    let person = other.person(7);
    let present = async || person.get(PRESENCE_PATH).await.expect(200).result()["count"].clone();
    let streams = [open(&fleet.hubs[0], "").await, open(&fleet.hubs[0], "").await];
    wait::until(WAIT_TIMEOUT, async || audience().await == 2).await;
    wait::until(WAIT_TIMEOUT, async || present().await == 1).await;
    drop(streams);
    wait::until(WAIT_TIMEOUT, async || present().await == 0).await;
    wait::until(WAIT_TIMEOUT, async || audience().await == 0).await;
    wait::until(WAIT_TIMEOUT, async || health(&fleet.hubs[0]).await["activeConnections"] == 0).await;
    assert_eq!(one.publish(&event).await.expect(200).result()["deliveredTo"], 0);
}

/// 100 streams on two hubs, and 50 events per second to ten rooms.
#[tokio::test]
async fn the_load_test_of_the_source_delivers_every_event_once_and_in_order() {
    let name = "the_load_test_of_the_source_delivers_every_event_once_and_in_order";
    let Some((_redis, fleet)) = start().await else { return };
    let (streams, rooms, events) = (100, 10, 50 * tier::size(10, 300) as u64);
    let (apis, mut rng) = (fleet.apis(), Rng::for_test(name));
    let opening = (0..streams).map(async |at| {
        let path = format!("/api/v1/rooms/{}/stream", at % rooms + 1);
        let request = Stream::request(&fleet.hubs[at / rooms % 2], &path).person(at);
        request.open().await.expect("a stream")
    });
    let mut open = join_all(opening).await;
    let publishing = async {
        let (mut published, mut beat) = (vec![Vec::new(); rooms], interval(Duration::from_millis(20)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for n in 0..events {
            beat.tick().await;
            let room = rng.below(rooms as u64) as usize;
            let data = json!({"userId": 1, "retrospectId": 100, "n": n});
            let id = apis[n as usize % 2].publish_to(room + 1, "retrospect.submitted", data).await;
            published[room].push(id);
        }
        for room in 1..=rooms {
            apis[0].publish_to(room, "load.end", json!({})).await;
        }
        published
    };
    let reading = join_all(open.iter_mut().map(async |stream| {
        let mut ids = Vec::new();
        loop {
            let event = stream.next_event(WAIT_TIMEOUT).await.expect("an open stream");
            match event.event.as_str() {
                "retrospect.submitted" => ids.push(event.own_id.expect("an id")),
                "load.end" => return ids,
                other => panic!("a stream received {other}: {event:?}"),
            }
        }
    }));
    let (published, seen) = tokio::join!(publishing, reading);
    let wrong = seen.iter().enumerate().filter(|(at, ids)| **ids != published[at % rooms]).count();
    let reconnects = fleet.reconnects().await;
    proof::record(
        "fleet",
        name,
        json!({
            "seed": tier::seed(), "streams": seen.len(),
            "acknowledged": published.iter().map(Vec::len).sum::<usize>(),
            "delivered": seen.iter().map(Vec::len).sum::<usize>(), "busReconnects": reconnects,
            "streamsThatSawAnythingElse": wrong,
        }),
    );
    assert_eq!(wrong, 0, "streams with other events than published");
}

async fn redis() -> Option<Redis> {
    if !tier::needs_engine("redis") {
        return None;
    }
    Some(Redis::start().await)
}

async fn start() -> Option<(Redis, Fleet)> {
    let redis = redis().await?;
    let fleet = Fleet::start(&redis.url()).await;
    Some((redis, fleet))
}

/// Opens a stream after this position, or from now on when it is empty.
async fn open(hub: &Hub, position: &str) -> Stream {
    let request = Stream::request(hub, STREAM_PATH).person(7).last_event_id(position);
    request.open().await.expect("a stream")
}
