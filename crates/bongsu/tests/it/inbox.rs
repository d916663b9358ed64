//! The inbox: notifications are stored, counted, listed, read and deleted, each exactly once.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod away;
mod beside_rooms;
mod devices;
mod exact;
mod faults;
mod large;
mod page;
mod soon;
mod stream;

use std::time::Duration;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::sse::{Event, Request, Stream};
use bongsu_testkit::{Answer, Api, Hub, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than the interval at which hubs check whether their streams are still counted.
const RECOUNT_TIMEOUT: Duration = Duration::from_secs(120);
const INBOX_PATH: &str = "/api/notifications";
const NOTIFY_PATH: &str = "/api/v1/members/notify";
const STREAM_PATH: &str = "/api/notifications/stream";

async fn hub() -> Hub {
    Hub::builder(BONGSU).records().start().await
}

/// A hub of a fleet, on servers that the test starts itself.
fn one_of_a_fleet(redis: &str, database: &str) -> Builder {
    Hub::builder(BONGSU).env("REDIS_URL", redis).env("DATABASE_URL", database)
}

fn stream_request(hub: &Hub, user: u64) -> Request {
    Stream::request(hub, STREAM_PATH).person(user)
}

async fn open(request: Request) -> Stream {
    request.open().await.unwrap_or_else(|answer| panic!("no stream: {} {}", answer.status, answer.text()))
}

fn like_notification(event: &str, targets: &[u64]) -> Value {
    json!({"eventId": event, "type": "POST_LIKE", "targetIds": targets, "actorId": 2, "refId": 100,
        "payload": {"actorName": "봉수"}})
}

/// Whether this event is the notification for the inbox entry of `event`.
fn is_entry_of(told: &Event, event: &str) -> bool {
    told.event == "notification" && told.json()["eventId"] == event
}

async fn notify(api: &Api, notice: &Value) -> Answer {
    api.post(NOTIFY_PATH, notice.clone()).await
}

async fn list(api: &Api, user: u64, query: &str) -> Value {
    api.person(user).get(&format!("{INBOX_PATH}{query}")).await.expect(200).result().clone()
}

async fn unread(api: &Api, user: u64) -> u64 {
    let count = api.person(user).get("/api/v1/notifications/unread").await.expect(200);
    count.result()["count"].as_u64().expect("a count")
}

fn ids(listed: &Value) -> Vec<u64> {
    listed["items"].as_array().unwrap().iter().map(|item| item["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn notifications_are_listed_newest_first_and_counted() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for n in 1..=5 {
        let answer = notify(&api, &like_notification(&format!("e{n}"), &[7, 8, 7])).await;
        assert_eq!(answer.status, 202, "{}", answer.text());
        assert_eq!(answer.result()["eventId"], format!("e{n}"));
    }
    let page = list(&api, 7, "?limit=2").await;
    assert_eq!((ids(&page), &page["unread"], &page["nextCursor"]), (vec![5, 4], &json!(5), &json!("4")));
    let item = &page["items"][0];
    assert_eq!((&item["eventId"], &item["type"]), (&json!("e5"), &json!("POST_LIKE")));
    assert_eq!((&item["refId"], &item["actorId"], &item["readAt"]), (&json!(100), &json!(2), &Value::Null));
    assert_eq!(item["payload"], json!({"actorName": "봉수"}));
    assert!(item["message"].as_str().unwrap().contains("봉수님이"), "{item}");
    let english = api.person(7).with_header("accept-language", "en").get(INBOX_PATH).await.expect(200);
    assert!(english.result()["items"][0]["message"].as_str().unwrap().contains("likes your post"));
    assert_eq!(ids(&list(&api, 7, "?limit=2&cursor=4").await), [3, 2]);
    let last = list(&api, 7, "?cursor=2").await;
    assert_eq!((ids(&last), &last["nextCursor"]), (vec![1], &Value::Null));
    assert_eq!((unread(&api, 8).await, unread(&api, 9).await), (5, 0));
}

#[tokio::test]
async fn a_repeated_notification_reaches_only_new_recipients() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let first = notify(&api, &like_notification("e1", &[7])).await.expect(202).text();
    assert_eq!(
        notify(&api, &like_notification("e1", &[7])).await.expect(202).text(),
        first,
        "the second answer differs"
    );
    notify(&api, &like_notification("e1", &[7, 8])).await.expect(202);
    assert_eq!((unread(&api, 7).await, unread(&api, 8).await), (1, 1));
    let mut other = like_notification("e1", &[9]);
    other["refId"] = json!(101);
    notify(&api, &other).await.expect_error(409, "NOTIF4091");
    assert_eq!(unread(&api, 9).await, 0);
    // An entry that its owner has deleted does not come back.
    api.person(7).call("DELETE", &format!("{INBOX_PATH}/1"), "").await.expect(200);
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    assert_eq!((unread(&api, 7).await, ids(&list(&api, 7, "").await)), (0, vec![]));
}

#[tokio::test]
async fn marking_as_read_counts_once_by_either_id_and_either_route() {
    let hub = hub().await;
    let api = Api::new(&hub);
    for n in 1..=4 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
    }
    let person = api.person(7);
    let read = async |path: &str| person.call("PATCH", path, "").await;
    let first = read("/api/notifications/1/read").await.expect(200).result().clone();
    let again = read("/api/v1/notifications/e1/read").await.expect(200).result().clone();
    assert_eq!(first["readAt"], again["readAt"], "a repeated mark must keep the time");
    assert_eq!(unread(&api, 7).await, 3);
    read("/api/v1/notifications/2/read").await.expect(200);
    assert_eq!(ids(&list(&api, 7, "?unread=true").await), [4, 3]);
    assert_eq!(ids(&list(&api, 7, "").await), [4, 3, 2, 1]);
    // Another person's entries, and an id that does not exist.
    notify(&api, &like_notification("of8", &[8])).await.expect(202);
    for path in
        ["/api/notifications/9/read", "/api/notifications/of8/read", "/api/notifications/nothing/read"]
    {
        read(path).await.expect_error(404, "COMMON404");
    }
    api.person(9).call("PATCH", "/api/notifications/1/read", "").await.expect_error(404, "COMMON404");
    api.person(9).call("DELETE", "/api/notifications/1", "").await.expect_error(404, "COMMON404");
    person.call("DELETE", "/api/notifications/4", "").await.expect(200);
    person.call("DELETE", "/api/notifications/4", "").await.expect_error(404, "COMMON404");
    assert_eq!(unread(&api, 7).await, 1);
    let left = person.post("/api/notifications/read-all", json!({})).await.expect(200);
    assert_eq!((left.result(), unread(&api, 7).await), (&json!({"unread": 0}), 0));
    assert_eq!(unread(&api, 8).await, 1, "unread entries of person 8");
}

#[tokio::test]
async fn follow_up_records_of_rooms_become_entries() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let event = json!({"roomId": 42, "eventType": "comment.created", "data": {"title": "안녕"},
        "publisherId": 3, "recipients": [7, 8], "idempotencyKey": "k"});
    let id = api.publish(&event).await.expect(200).result()["streamId"].as_str().unwrap().to_owned();
    api.publish(&event).await.expect(200);
    wait::until(WAIT_TIMEOUT, async || unread(&api, 7).await == 1 && unread(&api, 8).await == 1).await;
    let item = list(&api, 7, "").await["items"][0].clone();
    assert_eq!((&item["type"], &item["refId"]), (&json!("comment.created"), &json!(42)));
    assert_eq!((&item["actorId"], &item["eventId"]), (&json!(3), &json!(format!("42:{id}"))));
    let path = format!("/api/v1/notifications/42:{id}/read");
    api.person(7).call("PATCH", &path, "").await.expect(200);
    assert_eq!((unread(&api, 7).await, unread(&api, 8).await), (0, 1));
}

#[tokio::test]
async fn settings_have_their_effect() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let (path, person) = ("/api/notifications/settings", api.person(7));
    let first = json!({"enabled": true, "types": {},
        "channels": {"PUSH": true, "IN_APP": true, "SMS": false, "EMAIL": false}, "quietHours": null});
    assert_eq!(person.get(path).await.expect(200).result(), &first);
    let hours = json!({"start": "22:00", "end": "07:00", "zone": "Asia/Seoul", "allowHigh": false});
    let body = json!({"types": {"POST_LIKE": false}, "channels": {"SMS": true}, "quietHours": hours});
    let changed = person.call("PUT", path, body.to_string()).await.expect(200).result().clone();
    assert_eq!((&changed["types"], &changed["quietHours"]), (&json!({"POST_LIKE": false}), &hours));
    person.call("PUT", path, r#"{"types":{"comment.created":true}}"#).await.expect(200);
    let now = person.get(path).await.expect(200).result().clone();
    assert_eq!(now["types"], json!({"POST_LIKE": false, "comment.created": true}));
    assert_eq!((&now["channels"]["SMS"], &now["quietHours"]), (&json!(true), &hours));
    for (body, field) in [
        (r#"{"enabled":"yes"}"#, "enabled"),
        (r#"{"quietHours":{"start":"22:00","end":"7:00","zone":"Asia/Seoul"}}"#, "quietHours.end"),
        (r#"{"quietHours":{"start":"22:00","end":"07:00","zone":"Asia/Nowhere"}}"#, "quietHours.zone"),
        (r#"{"channels":{"PIGEON":true}}"#, "channels.PIGEON"),
        (r#"{"types":{"no such thing":true}}"#, "types.no such thing"),
        ("[]", "body"),
    ] {
        let answer = person.call("PUT", path, body).await.expect_error(400, "COMMON400");
        assert!(answer.text().contains(field), "{body}: {}", answer.text());
    }
    assert_eq!(person.get(path).await.expect(200).result(), &now, "refused settings were stored");
    let many: Value =
        (0..201).map(|n| (format!("T{n}"), json!(true))).collect::<serde_json::Map<_, _>>().into();
    let answer = person.call("PUT", path, json!({"types": many}).to_string()).await;
    assert!(answer.expect_error(400, "COMMON400").text().contains("types"));
    assert_eq!(api.person(8).get(path).await.expect(200).result(), &first, "settings of person 8");
}

#[tokio::test]
async fn invalid_requests_are_named_and_change_nothing() {
    let hub = hub().await;
    let api = Api::new(&hub);
    let with = |field: &str, value: Value| {
        let mut notice = like_notification("e1", &[7]);
        notice[field] = value;
        notice
    };
    let targets: Vec<u64> = (0..1_001).collect();
    for (notice, field) in [
        (with("eventId", json!("a b")), "eventId"),
        (with("eventId", Value::Null), "eventId"),
        (with("type", json!("post.like")), "type"),
        (with("type", json!("")), "type"),
        (with("targetIds", json!([])), "targetIds"),
        (with("targetIds", json!(targets)), "targetIds"),
        (with("targetIds", json!([7, "a b"])), "targetIds[1]"),
        (with("targetIds", json!(7)), "targetIds"),
        (with("actorId", json!({})), "actorId"),
        (with("refId", json!(1.5)), "refId"),
        (with("payload", json!([])), "payload"),
    ] {
        let answer = notify(&api, &notice).await.expect_error(400, "COMMON400");
        assert!(answer.message().starts_with(&format!("{field}: ")), "{field}: {}", answer.text());
    }
    for (query, field) in [
        ("?limit=0", "limit"),
        ("?limit=101", "limit"),
        ("?cursor=abc", "cursor"),
        ("?cursor=-1", "cursor"),
        ("?cursor=99999999999999999999", "cursor"),
        ("?unread=perhaps", "unread"),
    ] {
        let answer = api.person(7).get(&format!("{INBOX_PATH}{query}")).await.expect_error(400, "COMMON400");
        assert!(answer.message().starts_with(&format!("{field}: ")), "{query}: {}", answer.text());
    }
    for id in ["a%20b", &"x".repeat(193), "%00"] {
        api.person(7)
            .call("PATCH", &format!("{INBOX_PATH}/{id}/read"), "")
            .await
            .expect_error(400, "COMMON400");
    }
    api.anonymous().post(NOTIFY_PATH, like_notification("e1", &[7])).await.expect_error(401, "AUTH4001");
    api.anonymous().get(INBOX_PATH).await.expect_error(401, "AUTH4001");
    assert_eq!((unread(&api, 7).await, ids(&list(&api, 7, "?cursor=999").await)), (0, vec![]));
}
