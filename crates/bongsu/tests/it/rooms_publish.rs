//! Publishing: accepted and refused requests, the fields that refusals name, and the stored events.

mod batch;
mod recipients;
mod refused;

use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Answer, Api, Hub};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const PUBLISH_PATH: &str = "/api/v1/notifications/publish";

async fn hub() -> Hub {
    Hub::builder(BONGSU).start().await
}

/// A valid event with some fields replaced; null removes a field.
fn event(changes: &Value) -> Value {
    let mut event = json!({"roomId": "a", "eventType": "comment.created", "data": {"n": 1}});
    for (name, value) in changes.as_object().into_iter().flatten() {
        event[name] = value.clone();
    }
    event.as_object_mut().into_iter().for_each(|members| members.retain(|_, value| !value.is_null()));
    event
}

/// All events in the log of a room.
async fn stored(hub: &Hub, room: &str) -> Vec<Value> {
    let path = format!("/api/v1/rooms/{room}/events?since=0-0&count=500");
    let answer = Api::new(hub).person(7).get(&path).await.expect(200);
    answer.result()["events"].as_array().cloned().unwrap_or_default()
}

/// Checks that an answer is a refusal with this code whose English message names the field.
#[track_caller]
fn expect_field_error(answer: Answer, code: &str, field: &str) {
    let answer = answer.expect_error(400, code);
    assert!(answer.message().starts_with(&format!("{field}: ")), "{field}: {}", answer.message());
}

#[tokio::test]
async fn the_publish_answer_has_the_id_the_listeners_and_the_duplicate_flag() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let answer = api.publish(event(&json!({}))).await.expect(200);
    assert_eq!((answer.code(), &answer.body["isSuccess"]), ("COMMON200", &json!(true)));
    let result = answer.result().as_object().unwrap();
    assert_eq!(result.keys().collect::<Vec<_>>(), ["deliveredTo", "duplicate", "streamId"]);
    assert_eq!((&result["deliveredTo"], &result["duplicate"]), (&json!(0), &json!(false)));
    // An id is a pair of numbers; compared as text, `9-10` would come before `9-9`.
    let number = |id: &Value| -> (i64, u64) {
        let (ms, seq) = id.as_str().unwrap().split_once('-').unwrap();
        (ms.parse().unwrap(), seq.parse().unwrap())
    };
    let first = number(&result["streamId"]);
    assert!((first.0 / 1_000 - bongsu_testkit::tokens::now()).abs() < 120);
    // HTTP/2 gives the same answer.
    let second = Api::http2(&hub).publish(event(&json!({}))).await.expect(200);
    assert!(number(&second.result()["streamId"]) > first);
}

#[tokio::test]
async fn ids_are_numbers_or_text_and_both_name_the_same_room() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let forms = [
        json!(42),
        json!("42"),
        json!(-7),
        json!(9_007_199_254_740_991_i64),
        json!(-9_007_199_254_740_991_i64),
    ];
    for room in &forms {
        api.publish(event(&json!({"roomId": room, "publisherId": room}))).await.expect(200);
    }
    assert_eq!(stored(&hub, "42").await.len(), 2);
    for room in ["-7", "9007199254740991", "-9007199254740991"] {
        let events = stored(&hub, room).await;
        assert_eq!((events.len(), events[0]["publisherId"].to_string().as_str()), (1, room));
    }
    let longest = "Az09._@:-".repeat(15)[..128].to_owned();
    api.publish(event(&json!({"roomId": longest, "publisherId": longest}))).await.expect(200);
    assert_eq!(stored(&hub, &longest).await[0]["publisherId"], longest);
}

#[tokio::test]
async fn the_publisher_may_be_left_out_and_unknown_fields_are_ignored() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let extra = json!({"priority": "high", "streamId": "1-1", "timestamp": 5, "duplicate": [{"deep": null}]});
    let id = api.publish(event(&extra)).await.expect(200).result()["streamId"].clone();
    for changes in [json!({"publisherId": null}), json!({"idempotencyKey": null}), json!({"recipients": []})]
    {
        let mut event = event(&json!({}));
        event.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        api.publish(event).await.expect(200);
    }
    let events = stored(&hub, "a").await;
    assert_eq!((events.len(), &events[0]["id"], &events[0]["publisherId"]), (4, &id, &Value::Null));
    assert_eq!(events[0]["data"], json!({"n": 1}));
}

#[tokio::test]
async fn event_data_is_delivered_unchanged() {
    let hub = hub().await;
    let mut stream = Stream::request(&hub, "/api/v1/rooms/a/stream").person(7).open().await.ok().unwrap();
    // Numbers that a parser would round, keys in their order, escapes, and white space that would end a line.
    let data =
        "{ \"z\" : 12345678901234567890.10 ,\r\n\t\"a\":\"\\u0000\\ud83d\\ude00\\/\", \"\":[ ], \"e\":1E5 }";
    let body = format!("{{\"roomId\":\"a\",\"eventType\":\"a.b\",\"data\":{data}}}");
    Api::new(&hub).call("POST", PUBLISH_PATH, body).await.expect(200);
    let seen = stream.expect_event("a.b", WAIT_TIMEOUT).await;
    let compact = r#"{"z":12345678901234567890.10,"a":"\u0000\ud83d\ude00\/","":[],"e":1E5,"timestamp":""#;
    assert!(seen.data.starts_with(compact), "{}", seen.data);
}

#[tokio::test]
async fn only_configured_event_types_are_accepted() {
    let hub = Hub::builder(BONGSU).env("EVENT_TYPES", "comment.created, like.toggled").start().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    for kind in ["comment.created", "like.toggled"] {
        api.publish(event(&json!({"eventType": kind}))).await.expect(200);
    }
    for kind in ["comment.deleted", "comment.created.v2", "like"] {
        expect_field_error(api.publish(event(&json!({"eventType": kind}))).await, "NOTIF4001", "eventType");
    }
    assert_eq!(stored(&hub, "a").await.len(), 2);
}

#[tokio::test]
async fn a_room_keeps_as_many_events_as_it_was_given() {
    let builder = Hub::builder(BONGSU).env("STREAM_MAXLEN", 20);
    let hub = builder.env("STREAM_MAXLEN_PER_ROOM", "small=3,large=400").start().await;
    let api = Api::new(&hub);
    for (room, keep) in [("small", 3), ("usual", 20), ("large", 400)] {
        let events: Vec<Value> =
            (0..450).map(|n| event(&json!({"roomId": room, "data": {"n": n}}))).collect();
        api.publish_batch(&events).await.expect(200);
        let events = stored(&hub, room).await;
        // At least the configured number of events, and not many more.
        let most = keep + keep.min(64);
        assert!((keep..=most).contains(&events.len()), "{room} keeps {}", events.len());
        assert_eq!(events.last().unwrap()["data"]["n"], 449);
        assert_eq!(events[0]["data"]["n"], 450 - events.len());
    }
}
