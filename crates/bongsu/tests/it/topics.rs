//! Domain events of services: published to a topic, kept in a queue, and handled once, on every engine and through kills.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::answer::Answer;
use bongsu_testkit::sse::{ResumingClient, Stream};
use bongsu_testkit::{Api, Hub, Rng, proof, tier, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
const STREAM_PATH: &str = "/api/notifications/stream?lang=en";
const DLQ_PATH: &str = "/api/admin/dlq/notification_queue";

async fn publish(api: &Api, kind: &str, body: &Value) -> Answer {
    let path = format!("/api/v1/topics/notification.{kind}/events");
    api.call("POST", &path, body.to_string()).await
}

fn event(id: &str, kind: &str, person: u64) -> Value {
    json!({"eventId": id, "type": kind, "key": person, "actorId": 2, "refId": 100, "data": {"actorName": "Ada"}})
}

async fn entries(api: &Api, person: u64) -> Vec<Value> {
    let list = api.person(person).get("/api/notifications?limit=100").await.expect(200);
    list.result()["items"].as_array().expect("a list").clone()
}

#[tokio::test]
async fn an_event_of_each_type_becomes_one_entry_and_one_live_event() {
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub);
    let mut stream = Stream::request(&hub, STREAM_PATH).person(7).open().await.expect("a stream");
    let kinds = ["FOLLOW", "POST_LIKE", "POST_COMMENT", "VOTE_ENDED", "ANY_OTHER"];
    for kind in kinds {
        for _ in 0..2 {
            let accepted = publish(&api, kind, &event(&format!("e-{kind}"), kind, 7)).await.expect(202);
            assert_eq!(
                *accepted.result(),
                json!({"eventId": format!("e-{kind}"), "topic": format!("notification.{kind}")})
            );
        }
    }
    for kind in kinds {
        let told = stream.expect_event("notification", WAIT_TIMEOUT).await.json();
        let fields = (&told["type"], &told["eventId"], &told["refId"], &told["actorId"]);
        assert_eq!(fields, (&json!(kind), &json!(format!("e-{kind}")), &json!(100), &json!(2)));
    }
    // Of an event without an id every publication is another event.
    let unnamed = json!({"type": "FOLLOW", "key": 7});
    let chosen = publish(&api, "FOLLOW", &unnamed).await.expect(202).result()["eventId"].clone();
    assert_eq!(stream.expect_event("notification", WAIT_TIMEOUT).await.json()["eventId"], chosen);
    let saved: Vec<Value> = entries(&api, 7).await.iter().map(|entry| entry["type"].clone()).collect();
    assert_eq!(saved, ["FOLLOW", "ANY_OTHER", "VOTE_ENDED", "POST_COMMENT", "POST_LIKE", "FOLLOW"]);
}

#[tokio::test]
async fn refused_events_change_nothing_and_the_error_names_the_field() {
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub);
    let post = async |topic: &str, body: String| {
        api.call("POST", &format!("/api/v1/topics/{topic}/events"), body).await
    };
    for (topic, body, field) in [
        ("orders.created", r#"{"type":"A"}"#, "topic"),
        ("notification.A.b", r#"{"type":"A"}"#, "topic"),
        ("a%20b", r#"{"type":"A"}"#, "topic"),
        ("notification.A", "{}", "type"),
        ("notification.A", r#"{"type":7}"#, "type"),
        ("notification.A", r#"{"type":"A","key":[1]}"#, "key"),
        ("notification.A", r#"{"type":"A","eventId":"a b"}"#, "eventId"),
        ("notification.A", r#"{"type":"A","data":[]}"#, "data"),
    ] {
        let refused = post(topic, body.to_owned()).await.expect_error(400, "COMMON400");
        assert!(refused.message().contains(field), "{topic} {body}: {}", refused.message());
    }
    let large = format!(r#"{{"type":"A","data":{{"a":"{}"}}}}"#, "x".repeat(65_536));
    post("notification.A", large).await.expect_error(413, "COMMON413");
    let path = "/api/v1/topics/notification.A/events";
    api.person(7).call("POST", path, r#"{"type":"A"}"#).await.expect_error(401, "AUTH4001");
    assert_eq!(entries(&api, 7).await, Vec::<Value>::new());
}

#[tokio::test]
async fn unusable_events_become_dead_letters_that_can_be_redriven() {
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub);
    let admin = api.admin();
    publish(&api, "FOLLOW", &json!({"eventId": "lost", "type": "FOLLOW"})).await.expect(202);
    publish(&api, "FOLLOW", &event("used", "FOLLOW", 7)).await.expect(202);
    // The same id with other content.
    publish(&api, "FOLLOW", &event("used", "POST_LIKE", 7)).await.expect(202);
    let letters = async || {
        admin.get(DLQ_PATH).await.expect(200).result()["letters"].as_array().cloned().unwrap_or_default()
    };
    wait::until(WAIT_TIMEOUT, async || letters().await.len() == 2).await;
    let found = letters().await;
    let reasons: Vec<&str> = found.iter().filter_map(|letter| letter["reason"].as_str()).collect();
    assert!(reasons[0].contains("targetId") && reasons[1].contains("eventId"), "{reasons:?}");
    assert_eq!(
        (&found[1]["key"], &found[1]["type"], &found[1]["attempts"]),
        (&json!("7"), &json!("notification.FOLLOW"), &json!(1))
    );
    let payload: Value = serde_json::from_str(found[0]["payload"].as_str().expect("text")).expect("JSON");
    assert_eq!((&payload["eventId"], &payload["eventType"]), (&json!("lost"), &json!("FOLLOW")));
    let redriven = admin.call("POST", &format!("{DLQ_PATH}/redrive"), r#"{"all":true}"#).await.expect(202);
    assert_eq!(redriven.result()["letters"], 2);
    // They fail again, as new dead letters.
    let last = found[1]["id"].as_i64().expect("an id");
    wait::until(WAIT_TIMEOUT, async || {
        let again = letters().await;
        again.len() == 2 && again.iter().all(|letter| letter["id"].as_i64() > Some(last))
    })
    .await;
    for letter in letters().await {
        let path = format!("{DLQ_PATH}/{}", letter["id"]);
        admin.call("DELETE", &path, "").await.expect(200);
    }
    assert_eq!(letters().await.len(), 0);
    assert_eq!(entries(&api, 7).await.len(), 1);
}

#[tokio::test]
async fn events_become_one_entry_and_one_live_event_each_while_hubs_are_killed() {
    let name = "events_become_one_entry_and_one_live_event_each_while_hubs_are_killed";
    let (rounds, mut rng) = (tier::size(5, 100), Rng::for_test(name));
    let hub = Hub::builder(BONGSU).records().start().await;
    let api = Api::new(&hub);
    let mut client = ResumingClient::new(Stream::request(&hub, STREAM_PATH).person(7))
        .max_retry_delay(Duration::from_millis(100));
    publish(&api, "FOLLOW", &event("first", "FOLLOW", 7)).await.expect(202);
    let mut live =
        vec![client.next_event(WAIT_TIMEOUT).await.expect("the stream opens").json()["eventId"].clone()];
    let (mut sent, mut unanswered) = (vec![json!("first")], 0);
    for round in 0..rounds {
        let events: Vec<String> = (0..rng.range(3..12)).map(|n| format!("r{round}-{n}")).collect();
        let kill = async {
            tokio::time::sleep(Duration::from_millis(rng.range(0..120))).await;
            hub.kill9().await;
            hub.restart().await;
        };
        let send = async {
            let mut repeated = 0;
            for id in &events {
                // A publisher repeats a request that was not answered, with the same id.
                while !is_accepted(&api, id).await {
                    repeated += 1;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            repeated
        };
        let ((), repeated) = tokio::join!(kill, send);
        unanswered += repeated;
        sent.extend(events.into_iter().map(|id| json!(id)));
        while live.len() < sent.len() {
            let event = client.next_event(WAIT_TIMEOUT).await.expect("the stream goes on");
            assert_ne!(event.event, "ping", "round {round}: {} of {} events came", live.len(), sent.len());
            if event.event == "notification" {
                live.push(event.json()["eventId"].clone());
            }
        }
    }
    let facts = json!({"seed": tier::seed(), "kills": rounds, "acknowledged": sent.len(), "delivered": live.len(),
        "unansweredRequests": unanswered, "connections": client.connections()});
    proof::record("topics", name, facts);
    assert_eq!(live, sent, "every event once and in order");
    let count = api.person(7).get("/api/v1/notifications/unread").await.expect(200);
    assert_eq!(count.result()["count"], sent.len());
}

/// Whether a publication was answered with 202.
async fn is_accepted(api: &Api, id: &str) -> bool {
    let body = event(id, "FOLLOW", 7).to_string();
    let answer = api.try_call("POST", "/api/v1/topics/notification.FOLLOW/events", body).await;
    answer.is_ok_and(|answer| answer.status == 202)
}
