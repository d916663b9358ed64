//! A repeated publish has one effect: one key means one event and one answer, whatever other requests come at the
//! same time and whatever happens to the process.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Answer, Api, Hub, proof, tier, wait};
use futures_util::future::join_all;
use serde_json::{Value, json};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

async fn hub() -> Hub {
    Hub::builder(crate::BONGSU).start().await
}

fn event(room: &str, key: &str, data: impl Into<Value>) -> Value {
    let data = data.into();
    json!({"roomId": room, "eventType": "comment.created", "data": data, "publisherId": 1, "idempotencyKey": key})
}

/// The answer without `duplicate`, the only member in which a repeated answer differs.
fn first_answer(answer: &Answer) -> Value {
    let mut result = answer.result().clone();
    result.as_object_mut().expect("an object").remove("duplicate");
    result
}

async fn stored(api: &Api, room: &str) -> Vec<Value> {
    let page =
        api.person(1).get(&format!("/api/v1/rooms/{room}/events?since=0-0&count=500")).await.expect(200);
    assert_eq!(page.result()["hasMore"], false);
    page.result()["events"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn a_hundred_publishes_with_one_key_are_one_event_with_one_answer_also_after_a_crash() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let mut listeners = Vec::new();
    for person in 0..3 {
        let request = Stream::request(&hub, "/api/v1/rooms/once/stream").person(person);
        listeners.push(request.open().await.expect("a stream"));
    }
    let publish = |data: Value| {
        let (api, event) = (api.clone(), event("once", "key-1", data));
        async move { api.publish(event).await }
    };
    let same = || json!({"userId": 1, "content": "안녕"});
    let answers = join_all((0..100).map(|_| publish(same()))).await;
    let answers: Vec<Answer> = answers.into_iter().map(|answer| answer.expect(200)).collect();
    let first = first_answer(&answers[0]);
    assert_eq!(first["deliveredTo"], 3);
    for answer in &answers {
        assert_eq!(first_answer(answer), first);
    }
    let originals = answers.iter().filter(|answer| answer.result()["duplicate"] == false).count();
    assert_eq!(originals, 1, "only one answer must not be a duplicate");

    // The repeated answer does not change when a stream is opened or closed.
    drop(listeners.pop());
    let again = publish(same()).await.expect(200);
    assert_eq!((first_answer(&again), &again.result()["duplicate"]), (first.clone(), &json!(true)));
    publish(json!({"userId": 1, "content": "other"})).await.expect_error(409, "NOTIF4091");
    let marker = api.publish_to("once", "comment.created", json!({"marker": true})).await;
    for listener in &mut listeners {
        let seen = listener.take_events(2, WAIT_TIMEOUT).await;
        assert_eq!(seen[0].own_id.as_deref(), first["streamId"].as_str());
        assert_eq!(
            seen[1].own_id.as_deref(),
            Some(marker.as_str()),
            "the repeated event was delivered twice"
        );
    }

    let (mut restarts, mut after_restarts) = (0, 0);
    for _ in 0..tier::size(2, 20) {
        hub.kill9().await;
        hub.restart().await;
        let answers = join_all((0..20).map(|_| publish(same()))).await;
        for answer in answers.into_iter().map(|answer| answer.expect(200)) {
            assert_eq!((first_answer(&answer), &answer.result()["duplicate"]), (first.clone(), &json!(true)));
            after_restarts += 1;
        }
        publish(json!({"userId": 2})).await.expect_error(409, "NOTIF4091");
        assert_eq!(stored(&api, "once").await.len(), 2);
        restarts += 1;
    }
    let events = stored(&api, "once").await.iter().filter(|event| event["id"] == first["streamId"]).count();
    proof::record(
        "rooms",
        "a_hundred_publishes_with_one_key_are_one_event_with_one_answer_also_after_a_crash",
        json!({"publishes": answers.len(), "events": events, "restarts": restarts,
            "publishesAfterRestarts": after_restarts}),
    );
}

#[tokio::test]
async fn concurrent_publishes_of_different_content_with_one_key_store_one_event() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let answers = join_all((0..100).map(|n| {
        let (api, event) = (api.clone(), event("race", "key", json!({"n": n % 4})));
        async move { api.publish(event).await }
    }))
    .await;
    let events = stored(&api, "race").await;
    assert_eq!(events.len(), 1);
    let winner = events[0]["data"]["n"].as_u64().expect("a number");
    for (n, answer) in (0_u64..).zip(answers) {
        if n % 4 == winner {
            assert_eq!(answer.expect(200).result()["streamId"], events[0]["id"]);
        } else {
            answer.expect_error(409, "NOTIF4091");
        }
    }
}

#[tokio::test]
async fn the_same_idempotency_key_in_another_room_is_another_event() {
    let hub = hub().await;
    let api = Api::new(&hub);
    // Room and key would collide if they were simply concatenated.
    for (room, key) in [("a", "b:c"), ("a:b", "c"), ("A", "b:c"), ("b", "b:c")] {
        let answer = api.publish(event(room, key, json!({"room": room}))).await.expect(200);
        assert_eq!(answer.result()["duplicate"], false, "room {room}, key {key}");
        assert_eq!(stored(&api, room).await.len(), 1);
    }
}

#[tokio::test]
async fn only_the_order_of_json_fields_and_whitespace_do_not_change_the_content_digest() {
    let hub = Hub::builder(crate::BONGSU).records().start().await;
    let api = Api::new(&hub);
    let body = |data: &str, rest: &str| {
        format!(r#"{{"roomId":"o","eventType":"a.b","idempotencyKey":"k","data":{data}{rest}}}"#)
    };
    let publish = |body: String| {
        let api = api.clone();
        async move { api.call("POST", "/api/v1/notifications/publish", body).await }
    };
    let first = publish(body(r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#, "")).await.expect(200);
    let same = [r#"{"b":{"d":"x","c":[1,2]},"a":1}"#, r#"{ "b" : {"c":[1, 2],"d":"x"}, "a":1 }"#];
    for data in same {
        let again = publish(body(data, "")).await.expect(200);
        assert_eq!(
            (first_answer(&again), &again.result()["duplicate"]),
            (first_answer(&first), &json!(true))
        );
    }
    let data = r#"{"a":1,"b":{"c":[1,2],"d":"x"}}"#;
    let others = [
        body(r#"{"a":1,"b":{"c":[2,1],"d":"x"}}"#, ""),
        body(r#"{"a":"1","b":{"c":[1,2],"d":"x"}}"#, ""),
        body(data, r#","publisherId":7"#),
        body(data, r#","recipients":[7]"#),
        body(data, r#","recipients":[]"#),
        body(data, "").replace("a.b", "a.c"),
    ];
    for other in others {
        publish(other).await.expect_error(409, "NOTIF4091");
    }
    assert_eq!(stored(&api, "o").await.len(), 1);
}

#[tokio::test]
async fn without_a_key_every_publish_is_an_event() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let answers =
        join_all(
            (0..50).map(|_| {
                let api = api.clone();
                async move {
                    api.publish(json!({"roomId": "free", "eventType": "a.b", "data": {"same": true}})).await
                }
            }),
        )
        .await;
    let mut ids: Vec<Value> =
        answers.into_iter().map(|answer| answer.expect(200).result()["streamId"].clone()).collect();
    ids.sort_unstable_by_key(Value::to_string);
    ids.dedup();
    assert_eq!(ids.len(), 50);
    assert_eq!(stored(&api, "free").await.len(), 50);
}

#[tokio::test]
async fn a_key_that_is_repeated_inside_a_batch_is_one_event() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let batch = [
        event("batch", "k", json!({"n": 1})),
        event("batch", "k", json!({"n": 1})),
        event("batch", "k", json!({"n": 2})),
        event("batch", "l", json!({"n": 1})),
        event("other", "k", json!({"n": 2})),
    ];
    for round in 0..2 {
        let answer = api.publish_batch(&batch).await.expect(200);
        let results = answer.result()["results"].as_array().expect("a list").clone();
        let duplicates: Vec<&Value> = results.iter().map(|result| &result["duplicate"]).collect();
        let repeated = json!(round == 1);
        assert_eq!(
            duplicates,
            [&repeated, &json!(true), &Value::Null, &repeated, &repeated],
            "{}",
            answer.text()
        );
        assert_eq!(results[0]["streamId"], results[1]["streamId"]);
        assert_eq!((&results[2]["code"], &results[2]["index"]), (&json!("NOTIF4091"), &json!(2)));
    }
    let kept = stored(&api, "batch").await;
    assert_eq!(kept.len(), 2);
    assert_eq!(stored(&api, "other").await.len(), 1);
    // Batches and single publishes share their idempotency keys.
    let single = api.publish(event("batch", "l", json!({"n": 1}))).await.expect(200);
    assert_eq!((&single.result()["streamId"], &single.result()["duplicate"]), (&kept[1]["id"], &json!(true)));
}

#[tokio::test]
async fn beyond_the_key_limit_the_oldest_idempotency_keys_are_evicted_and_counted() {
    let hub = Hub::builder(crate::BONGSU).env("IDEMPOTENCY_MAX_KEYS", 1_000).start().await;
    let api = Api::new(&hub);
    let keyed = |n: u64| event(&format!("room{}", n % 30), &format!("key-{n}"), json!({"n": n}));
    for first in [0, 500, 1_000] {
        let batch: Vec<Value> = (first..first + 500).map(keyed).collect();
        api.publish_batch(&batch).await.expect(200);
    }
    // On Redis the limit is divided among 16 lists, and may be exceeded by 15 keys.
    let dropped = async || hub.metrics().await.get("idempotency_keys_dropped_early_total", &[]);
    wait::until(WAIT_TIMEOUT, async || (485.0..=500.0).contains(&dropped().await)).await;
    for n in [1_000, 1_250, 1_499] {
        let again = api.publish(keyed(n)).await.expect(200);
        assert_eq!(again.result()["duplicate"], true, "key {n} is among the newest");
    }
    let oldest = api.publish(keyed(0)).await.expect(200);
    assert_eq!(oldest.result()["duplicate"], false, "the oldest key was not evicted");
}
