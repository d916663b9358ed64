//! Fleets on Redis without a database: with RECORDS=off everything that needs no records works over several hubs, and
//! the rest answers 503 with the reason; a hub with records in its own file admits no second hub.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::process::ExitStatus;
use std::time::Duration;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sse::Stream;
use bongsu_testkit::ws::WebSocket;
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

fn hub(redis: &Redis) -> Builder {
    Hub::builder(BONGSU).env("REDIS_URL", redis.url())
}

fn hub_without_records(redis: &Redis) -> Builder {
    hub(redis).env("RECORDS", "off")
}

async fn health(hub: &Hub) -> Value {
    Api::at(&hub.url("")).get("/health").await.expect(200).result().clone()
}

#[tokio::test]
async fn rooms_presence_and_streams_work_over_two_hubs_without_records() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let (one, other) = tokio::join!(hub_without_records(&redis).start(), hub_without_records(&redis).start());
    let (api, far) = (Api::at(&one.url("")), Api::at(&other.url("")));
    let open = async |hub: &Hub, path: &str, user: u64| {
        Stream::request(hub, path).person(user).open().await.ok().unwrap()
    };
    let mut single = open(&other, "/api/v1/rooms/42/stream", 7).await;
    let mut combined = open(&other, "/api/v1/stream?rooms=42,43", 8).await;
    let mut socket = WebSocket::open(&other, "/api/v1/ws", 9).await;
    socket.send(&json!({"op": "subscribe", "room": 42})).await;
    assert_eq!(socket.message(WAIT_TIMEOUT).await["event"], "system.subscribed");
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {"n": 1}, "idempotencyKey": "k"});
    let id = api.publish(&event).await.expect(200).result()["streamId"].clone();
    let again = far.publish(&event).await.expect(200).result().clone();
    assert_eq!((&again["streamId"], &again["duplicate"]), (&id, &json!(true)), "the key must name one event");
    assert_eq!(single.expect_event("a.b", WAIT_TIMEOUT).await.own_id.map(Value::from).as_ref(), Some(&id));
    let event = combined.expect_event("a.b", WAIT_TIMEOUT).await.json();
    assert_eq!((&event["n"], &event["roomId"]), (&json!(1), &json!(42)));
    assert_eq!(socket.message(WAIT_TIMEOUT).await["id"], id);
    let page = api.person(1).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"][0]["id"], id);
    api.person(6).post("/api/v1/rooms/42/presence/heartbeat", json!({})).await.expect(200);
    let online = async || {
        let answer = api.person(1).get("/api/v1/rooms/42/presence").await.expect(200);
        let users = answer.result()["onlineUsers"].as_array().unwrap().clone();
        users.iter().map(|user| user["userId"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    wait::until(WAIT_TIMEOUT, async || online().await == [6, 7, 8, 9]).await;
    let ticket = api.person(5).post("/api/v1/stream-tickets", json!({})).await.expect(200);
    let path = format!("/api/v1/rooms/42/stream?ticket={}", ticket.result()["ticket"].as_str().unwrap());
    assert!(Stream::request(&other, &path).open().await.is_ok(), "a ticket must be valid at both hubs");
    api.admin().post("/api/admin/users/7/disconnect", json!({})).await.expect(200);
    assert_eq!(single.expect_event("system.close", WAIT_TIMEOUT).await.json()["code"], 3001);
    for hub in [&one, &other] {
        assert_eq!(health(hub).await["status"], "healthy", "{}", health(hub).await);
        assert!(!hub.data_dir().exists(), "a hub without records must create no data folder");
    }
}

#[tokio::test]
async fn routes_that_need_records_answer_503_and_name_the_setting() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = hub_without_records(&redis).start().await;
    let service = Api::at(&hub.url(""));
    let person = service.person(7);
    let notice = json!({"eventId": "e1", "type": "FOLLOW", "targetIds": [7]}).to_string();
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {}, "recipients": [7]}).to_string();
    let requests = [
        (&service, "POST", "/api/v1/notifications/publish", event.as_str()),
        (&service, "PUT", "/api/v1/rooms/42", ""),
        (&service, "DELETE", "/api/v1/rooms/42", ""),
        (&service, "PUT", "/api/v1/rooms/42/members/7", ""),
        (&service, "DELETE", "/api/v1/rooms/42/members/7", ""),
        (&service, "POST", "/api/v1/members/notify", notice.as_str()),
        (&person, "GET", "/api/notifications", ""),
        (&person, "GET", "/api/v1/notifications/unread", ""),
        (&person, "PATCH", "/api/notifications/1/read", ""),
        (&person, "PATCH", "/api/v1/notifications/1/read", ""),
        (&person, "POST", "/api/notifications/read-all", "{}"),
        (&person, "DELETE", "/api/notifications/1", ""),
        (&person, "GET", "/api/notifications/settings", ""),
        (&person, "PUT", "/api/notifications/settings", "{}"),
        (&person, "GET", "/api/notifications/stream", ""),
        (&person, "GET", "/api/v1/stream?inbox=1", ""),
        (&person, "GET", "/api/v1/stream?rooms=42&inbox=1", ""),
        (&person, "GET", "/events/1/stream", ""),
    ];
    for (api, method, path, body) in requests {
        let english = api.with_header("accept-language", "en");
        let answer = english.call(method, path, body.to_owned()).await;
        let message = answer.expect_error(503, "COMMON503").message().to_owned();
        assert!(message.contains("RECORDS") && message.contains("off"), "{method} {path}: {message}");
        let korean = api.call(method, path, body.to_owned()).await.expect_error(503, "COMMON503");
        assert_ne!(korean.message(), message, "{method} {path} in Korean");
    }
    // A missing credential is reported before the missing records.
    service.anonymous().get("/api/notifications").await.expect_error(401, "AUTH4001");
    person.call("PUT", "/api/v1/rooms/42", "").await.expect_error(401, "AUTH4001");
}

#[tokio::test]
async fn publishing_writes_no_follow_up_record_where_no_inbox_exists() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hub = hub_without_records(&redis).start().await;
    let api = Api::at(&hub.url(""));
    let event = |recipients: Value| {
        let event = json!({"roomId": 42, "eventType": "a.b", "data": {}, "publisherId": 1});
        let mut event = event.as_object().unwrap().clone();
        event.extend((!recipients.is_null()).then(|| ("recipients".to_owned(), recipients)));
        Value::from(event)
    };
    // These events have no recipient to notify, so they need no records.
    for recipients in [Value::Null, json!([]), json!([1])] {
        api.publish(event(recipients)).await.expect(200);
    }
    api.publish(event(json!([7]))).await.expect_error(503, "COMMON503");
    let batch = api.publish_batch(&[event(json!([7])), event(Value::Null)]).await.expect(200);
    let results = batch.result()["results"].clone();
    assert_eq!((&results[0]["code"], &results[1]["duplicate"]), (&json!("COMMON503"), &json!(false)));
    assert_eq!(api.stored_ids(42).await.len(), 4, "refused events must not be stored");
    let left = redis.command(&["KEYS", "*follow-ups*"]).await;
    assert!(left.items().is_empty(), "{left:?}");
}

/// Checks that a refused hub ended with exit code 1 and one line for people, after the lines of its log.
fn expect_refusal((status, output): &(ExitStatus, String), reasons: &[&str]) {
    assert_eq!(status.code(), Some(1), "{output}");
    let lines: Vec<&str> = output.lines().filter(|line| !line.starts_with('{')).collect();
    let [line] = lines[..] else { panic!("not one line: {lines:?}") };
    assert_eq!(Some(line), output.lines().last(), "the reason is not the last line");
    for part in reasons.iter().chain(&["bongsu: ", "DATABASE_URL", "RECORDS=off"]) {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

#[tokio::test]
async fn a_second_instance_without_a_database_is_refused_and_the_first_keeps_serving() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let first = hub(&redis).start().await;
    let api = Api::at(&first.url(""));
    let mut stream = Stream::request(&first, "/api/v1/rooms/42/stream").person(7).open().await.ok().unwrap();
    // Both hubs wait as long as the lease of a killed instance could last, so they start at the same time.
    let (same, without) = tokio::join!(
        hub(&redis).start_expecting_failure(),
        hub_without_records(&redis).start_expecting_failure()
    );
    let address = first.addr().to_string();
    let own = "keeps records in a file of its own";
    expect_refusal(&same, &[&address, &format!("is alive and {own}, while this one {own}")]);
    expect_refusal(&without, &[&address, &format!("is alive and {own}, while this one has no records")]);
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {"n": 1}, "recipients": [8]});
    api.publish(&event).await.expect(200);
    assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], 1, "the stream must go on");
    let unread =
        async || api.person(8).get("/api/v1/notifications/unread").await.expect(200).result().clone();
    wait::until(WAIT_TIMEOUT, async || unread().await == json!({"count": 1})).await;
    assert_eq!(health(&first).await["status"], "healthy", "{}", health(&first).await);
}
