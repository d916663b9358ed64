//! Inbox entries of a published event: one per named recipient, with the content of the event. The format of the
//! follow-up record is checked against the golden record by the contract suite of the log.

use bongsu_testkit::{Api, Hub, wait};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, event, expect_field_error, stored};
use crate::BONGSU;

async fn inbox(api: &Api, person: &str) -> Vec<Value> {
    let answer = api.person(person).get("/api/notifications?limit=100").await.expect(200);
    answer.result()["items"].as_array().cloned().unwrap_or_default()
}

/// The inbox entries of these people, oldest first, once all entries are made: publishes a last event to each
/// room and waits for its entries.
async fn notifications_of<const N: usize>(api: &Api, rooms: &[&str], people: [&str; N]) -> [Vec<Value>; N] {
    for room in rooms {
        let last = json!({"roomId": room, "eventType": "test.last", "recipients": people.as_slice()});
        api.publish(event(&last)).await.expect(200);
    }
    let is_last = |item: &Value| item["type"] == "test.last";
    let mut told = [const { Vec::new() }; N];
    for (told, person) in told.iter_mut().zip(people) {
        let is_told =
            async || inbox(api, person).await.iter().filter(|item| is_last(item)).count() == rooms.len();
        wait::until(WAIT_TIMEOUT, is_told).await;
        *told = inbox(api, person).await.into_iter().filter(|item| !is_last(item)).rev().collect();
    }
    told
}

#[tokio::test]
async fn named_recipients_are_notified_once_and_the_publisher_is_not() {
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub);
    let named =
        json!({"publisherId": 1, "recipients": [3, "1", 2, "3", "anna", 1], "data": {"text": "안녕"}});
    let id = api.publish(event(&named)).await.expect(200).result()["streamId"].clone();
    api.publish(event(&json!({"recipients": []}))).await.expect(200);
    api.publish(event(&json!({"publisherId": 5, "recipients": [5]}))).await.expect(200);
    api.publish(event(&json!({}))).await.expect(200);
    let anonymous = api.publish(event(&json!({"roomId": "b", "recipients": ["5"]}))).await.expect(200);
    let [one, two, three, anna, five] =
        notifications_of(&api, &["a", "b"], ["1", "2", "3", "anna", "5"]).await;
    assert_eq!(one, Vec::<Value>::new(), "the publisher was notified");
    for told in [two, three, anna] {
        assert_eq!(told.len(), 1, "{told:?}");
        let (event_id, type_of) = (format!("a:{}", id.as_str().unwrap()), "comment.created");
        assert_eq!((&told[0]["eventId"], &told[0]["type"]), (&json!(event_id), &json!(type_of)));
        assert_eq!((&told[0]["actorId"], &told[0]["refId"]), (&json!(1), &json!("a")));
        assert_eq!(told[0]["payload"], json!({"text": "안녕"}));
    }
    let event_id = format!("b:{}", anonymous.result()["streamId"].as_str().unwrap());
    assert_eq!((five.len(), &five[0]["eventId"], &five[0]["actorId"]), (1, &json!(event_id), &Value::Null));
}

#[tokio::test]
async fn a_thousand_recipients_are_accepted_and_one_more_is_refused() {
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub).with_header("accept-language", "en");
    let people = |count: u32| json!({"recipients": (0..count).collect::<Vec<_>>()});
    expect_field_error(api.publish(event(&people(1_001))).await, "COMMON400", "recipients");
    assert_eq!(stored(&hub, "a").await.len(), 0);
    api.publish(event(&people(1_000))).await.expect(200);
    let [first, last, nobody] = notifications_of(&api, &["a"], ["0", "999", "1000"]).await;
    assert_eq!([first.len(), last.len(), nobody.len()], [1, 1, 0]);
}

#[tokio::test]
async fn a_repeated_request_notifies_nobody_twice_and_trimming_removes_no_recipient() {
    let hub = Hub::builder(BONGSU).records().env("STREAM_MAXLEN", 1).start().await;
    let api = Api::new(&hub);
    let once = event(&json!({"recipients": [1, 2], "idempotencyKey": "k"}));
    // The event is trimmed by the same batch that appends it, before its entries can have been made.
    let others = (0..50).map(|n| event(&json!({"data": {"n": n}})));
    let events: Vec<Value> = std::iter::once(once.clone()).chain(others).collect();
    let answer = api.publish_batch(&events).await.expect(200);
    let id = answer.result()["results"][0]["streamId"].clone();
    assert!(stored(&hub, "a").await.iter().all(|event| event["id"] != id), "the event was not trimmed");
    assert_eq!(api.publish(&once).await.expect(200).result()["duplicate"], true);
    api.publish(event(&json!({"recipients": [3], "idempotencyKey": "k"})))
        .await
        .expect_error(409, "NOTIF4091");
    let [one, two, three] = notifications_of(&api, &["a"], ["1", "2", "3"]).await;
    assert_eq!([one.len(), two.len(), three.len()], [1, 1, 0]);
    assert_eq!(one[0]["eventId"], format!("a:{}", id.as_str().unwrap()));
}
