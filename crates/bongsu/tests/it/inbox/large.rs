//! Entries larger than the 8 KiB that the bus carries: they are saved and listed, and reach live and resumed streams
//! complete and in order.

use bongsu_testkit::{Api, Engine, Hub, engine, tier, wait};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, list, notify, open, stream_request, unread};
use crate::BONGSU;

const MAX_BUS_MESSAGE_BYTES: usize = 8 << 10;
/// Lengths in bytes of a text in the payload, around the limit of the bus and up to the limit of a request,
/// 64 KiB. Small texts are in between, because they are sent in another way and must not overtake.
const TEXT_LENGTHS: [usize; 9] = [
    10,
    MAX_BUS_MESSAGE_BYTES - 1_000,
    10,
    MAX_BUS_MESSAGE_BYTES - 100,
    MAX_BUS_MESSAGE_BYTES,
    10,
    20_000,
    45_000,
    10,
];

/// A payload whose text has this many bytes, without repeated parts, with characters that must be escaped.
fn payload(length: usize) -> Value {
    let mut text = String::with_capacity(length);
    for n in 0..length {
        let next = format!("{n} 봉\"\n");
        if text.len() + next.len() > length {
            break;
        }
        text.push_str(&next);
    }
    text.extend(std::iter::repeat_n('x', length - text.len()));
    json!({"actorName": "봉수", "text": text})
}

/// The listed entries of a person, oldest first.
async fn listed(api: &Api, user: u64) -> Vec<Value> {
    list(api, user, "?limit=100").await["items"].as_array().unwrap().iter().rev().cloned().collect()
}

async fn large_entries_are_saved_listed_and_delivered_whole(engine: Engine) {
    let hub = Hub::builder(BONGSU).engine(engine).records().start().await;
    let api = Api::new(&hub);
    let mut device = open(stream_request(&hub, 7)).await;
    for (n, length) in TEXT_LENGTHS.into_iter().enumerate() {
        let notice = json!({"eventId": format!("e{n}"), "type": "POST_LIKE", "targetIds": [7], "actorId": 2,
            "refId": 100, "payload": payload(length)});
        notify(&api, &notice).await.expect(202);
    }
    // The same for a room event with recipients.
    let event =
        json!({"roomId": 42, "eventType": "comment.created", "data": payload(30_000), "recipients": [7]});
    let id = api.publish(&event).await.expect(200).result()["streamId"].as_str().unwrap().to_owned();
    let total = TEXT_LENGTHS.len() + 1;
    wait::until(WAIT_TIMEOUT, async || unread(&api, 7).await == total as u64).await;
    let entries = listed(&api, 7).await;
    for (n, length) in TEXT_LENGTHS.into_iter().enumerate() {
        assert_eq!(entries[n]["eventId"], format!("e{n}"));
        assert!(entries[n]["payload"] == payload(length), "the listed payload of {length} bytes differs");
    }
    assert_eq!(entries[total - 1]["eventId"], format!("42:{id}"));
    assert!(
        entries[total - 1]["payload"] == payload(30_000),
        "the listed payload of the room's event differs"
    );

    let mut resumed = open(stream_request(&hub, 7).last_event_id("0")).await;
    for (stream, name) in [(&mut device, "live"), (&mut resumed, "resumed")] {
        for (n, entry) in entries.iter().enumerate() {
            let event = stream.expect_event("notification", WAIT_TIMEOUT).await;
            assert_eq!(event.own_id, Some((n + 1).to_string()), "{name}");
            let data = event.json();
            for field in ["id", "eventId", "type", "message", "refId", "actorId"] {
                assert_eq!(data[field], entry[field], "{field} of entry {n}, {name}");
            }
            assert!(data["payload"] == entry["payload"], "the payload of entry {n} differs, {name}");
        }
    }
}

#[tokio::test]
async fn large_entries_are_delivered_whole_on_the_embedded_engine() {
    large_entries_are_saved_listed_and_delivered_whole(Engine::Embedded).await;
}

#[tokio::test]
async fn large_entries_are_delivered_whole_over_redis_and_postgres() {
    if tier::needs_engine("redis") && tier::needs_engine("postgres") {
        let engine = if engine() == Engine::Split { Engine::Split } else { Engine::Redis };
        large_entries_are_saved_listed_and_delivered_whole(engine).await;
    }
}
