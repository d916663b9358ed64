//! Batches: events are stored in order, each with its own result.

use bongsu_testkit::Api;
use serde_json::{Value, json};

use super::{event, expect_field_error, hub, stored};

const BATCH_PATH: &str = "/api/v1/notifications/publish/batch";

#[tokio::test]
async fn a_batch_of_five_hundred_is_stored_in_order_and_one_more_is_refused() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let events: Vec<Value> = (0..501).map(|n| event(&json!({"data": {"n": n}}))).collect();
    expect_field_error(api.publish_batch(&events).await, "COMMON400", "events");
    assert_eq!(stored(&hub, "a").await.len(), 0);
    let answer = api.publish_batch(&events[..500]).await.expect(200);
    let results = answer.result()["results"].as_array().unwrap();
    let stored = stored(&hub, "a").await;
    assert_eq!((results.len(), stored.len()), (500, 500));
    for (n, (result, stored)) in results.iter().zip(&stored).enumerate() {
        assert_eq!(result, &json!({"index": n, "streamId": stored["id"], "duplicate": false}));
        assert_eq!(stored["data"], json!({ "n": n }));
    }
    let none = api.publish_batch(&[]).await.expect(200);
    assert_eq!(none.result(), &json!({"results": []}));
}

#[tokio::test]
async fn one_invalid_item_does_not_delay_the_valid_ones() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let keyed = |n: u32| event(&json!({"idempotencyKey": "k", "data": {"n": n}}));
    let events = [
        event(&json!({"data": {"n": 0}})),
        event(&json!({"roomId": "a b"})),
        json!("no object"),
        event(&json!({"eventType": "system.close"})),
        keyed(4),
        keyed(4),
        keyed(6),
        event(&json!({"recipients": [1, "a b"]})),
        event(&json!({"eventType": "UPPER"})),
        event(&json!({"data": {"n": 9}})),
    ];
    let answer = api.publish_batch(&events).await.expect(200);
    let results = answer.result()["results"].as_array().unwrap();
    for (index, result) in results.iter().enumerate() {
        assert_eq!(result["index"], index);
        assert_ne!(result["streamId"].is_string(), result["code"].is_string(), "{result}");
        assert_ne!(result["streamId"].is_string(), result["message"].is_string(), "{result}");
    }
    let codes: Vec<_> = results.iter().map(|result| result["code"].as_str().unwrap_or("ok")).collect();
    let (bad, kind) = ("COMMON400", "NOTIF4001");
    assert_eq!(codes, ["ok", bad, bad, kind, "ok", "ok", "NOTIF4091", bad, kind, "ok"]);
    assert_eq!(results[4]["streamId"], results[5]["streamId"]);
    assert_eq!((&results[4]["duplicate"], &results[5]["duplicate"]), (&json!(false), &json!(true)));
    for (index, field) in
        [(1, "roomId"), (2, "events[2]"), (3, "eventType"), (7, "recipients[1]"), (8, "eventType")]
    {
        let message = results[index]["message"].as_str().unwrap();
        assert!(message.contains(&format!("{field}: ")), "{message}");
    }
    let stored = stored(&hub, "a").await;
    assert_eq!(
        stored.iter().map(|event| event["data"]["n"].as_u64().unwrap()).collect::<Vec<_>>(),
        [0, 4, 9]
    );
}

#[tokio::test]
async fn a_refused_item_is_named_by_its_index() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let bad = [
        (event(&json!({"roomId": "a b"})), "events[1].roomId: "),
        (event(&json!({"recipients": ["a b"]})), "events[1].recipients[0]: "),
        (event(&json!({"eventType": "UPPER"})), "events[1].eventType: "),
    ];
    for (bad, place) in bad {
        let answer = api.publish_batch(&[event(&json!({})), bad]).await.expect(200);
        let message = answer.result()["results"][1]["message"].as_str().unwrap();
        assert!(message.starts_with(place), "{message:?} does not begin with {place:?}");
    }
}

#[tokio::test]
async fn a_batch_is_one_list_of_at_most_4_mib() {
    let hub = hub().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    for body in [
        json!({}),
        json!({"events": null}),
        json!({"events": 5}),
        json!({"events": {}}),
        json!({"events": "x"}),
    ] {
        expect_field_error(api.post(BATCH_PATH, body).await, "COMMON400", "events");
    }
    for body in ["[]", "5", "", "{\"events\":[}", "{\"events\":[{}", "null"] {
        expect_field_error(api.call("POST", BATCH_PATH, body).await, "COMMON400", "body");
    }
    let body = |length: usize| {
        let item = event(&json!({"data": {"text": "x".repeat(60_000)}})).to_string();
        let items = vec![item; length / 61_000].join(",");
        let start = format!("{{\"events\":[{items}]");
        format!("{start}{}}}", " ".repeat(length - start.len() - 1))
    };
    for api in [Api::new(&hub), Api::http2(&hub)] {
        let answer = api.call("POST", BATCH_PATH, body(4 << 20)).await.expect(200);
        assert_eq!(answer.result()["results"].as_array().unwrap().len(), (4 << 20) / 61_000);
        api.call("POST", BATCH_PATH, body((4 << 20) + 1)).await.expect_error(413, "COMMON413");
    }
    assert!(hub.peak_rss_kib() < 300 * 1024, "{} KiB", hub.peak_rss_kib());
}
