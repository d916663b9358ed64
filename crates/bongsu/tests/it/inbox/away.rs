//! The database or Redis is unavailable: read marks are accepted, shown, and written when it is back; clients that open a
//! stream are asked to reconnect.

mod publishing;

use std::time::{Duration, Instant};

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::sse::{Item, ResumingClient};
use bongsu_testkit::{Api, tier, wait};
use serde_json::json;

use super::{
    INBOX_PATH, STREAM_PATH, WAIT_TIMEOUT, like_notification, list, notify, one_of_a_fleet, open,
    stream_request, unread,
};

async fn read_marks_are_accepted_while_the_database_is_unavailable(flavour: Flavour) {
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let database = server.database();
    let start = async || {
        let hub = one_of_a_fleet(&redis.url(), &database);
        hub.env("WRITE_BEHIND_INTERVAL_SECS", 1).start().await
    };
    let (one, other) = (start().await, start().await);
    let (api, there) = (Api::at(&one.url("")), Api::at(&other.url("")));
    for n in 1..=4 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
    }
    assert_eq!(unread(&api, 7).await, 4);
    let settings = "/api/notifications/settings";
    api.person(7).call("PUT", settings, r#"{"types":{"FOLLOW":false}}"#).await.expect(200);
    let remembered = async || redis.command(&["TTL", "notif:settings:7"]).await.integer();
    assert_eq!(remembered().await, -2, "a change must clear the cache");
    let seen = api.person(7).get(settings).await.expect(200).result().clone();
    assert!((1..=3_600).contains(&remembered().await), "a read must be cached for an hour");
    let mut device = open(stream_request(&other, 7)).await;
    device.take_events(4, WAIT_TIMEOUT).await;
    server.pause();
    let (paused, mut read) = (Instant::now(), Vec::new());
    for seq in [1, 3] {
        let answer = api.person(7).call("PATCH", &format!("{INBOX_PATH}/{seq}/read"), "").await.expect(200);
        read.push((seq, answer.result()["readAt"].clone()));
        let again = there.person(7).call("PATCH", &format!("{INBOX_PATH}/{seq}/read"), "").await.expect(200);
        assert_eq!(again.result()["readAt"], answer.result()["readAt"], "both hubs must show one time");
    }
    assert_eq!((unread(&api, 7).await, unread(&there, 7).await), (2, 2), "counts at both hubs");
    let beyond = api.person(7).call("PATCH", &format!("{INBOX_PATH}/5/read"), "").await;
    beyond.expect_error(503, "COMMON503");
    assert_eq!(*there.person(7).get(settings).await.expect(200).result(), seen, "the cached settings");
    api.person(7).get(INBOX_PATH).await.expect_error(503, "COMMON503");
    let health = async || api.anonymous().get("/health").await.expect(200).result()["status"].clone();
    wait::until(WAIT_TIMEOUT, async || health().await == "degraded").await;
    // The length of the pause is the fault itself, not a wait for a condition.
    tokio::time::sleep(Duration::from_secs(10).saturating_sub(paused.elapsed())).await;
    assert_eq!(unread(&api, 7).await, 2);
    server.resume();
    // Devices get only counts that were read from the database, so this `read` event arrives now.
    let told = device.expect_event("read", WAIT_TIMEOUT).await.json();
    assert_eq!((&told["ids"], &told["unread"]), (&json!([1, 3]), &json!(2)));
    notify(&api, &like_notification("e5", &[7])).await.expect(202);
    device.expect_event("notification", WAIT_TIMEOUT).await;
    assert_eq!(unread(&api, 7).await, 3, "a new entry must be unread");
    api.person(7).call("DELETE", &format!("{INBOX_PATH}/5"), "").await.expect(200);
    let next = device.expect_event("read", WAIT_TIMEOUT).await.json();
    assert!(next["version"].as_u64() > told["version"].as_u64() && next["unread"] == 2, "{told} {next}");
    wait::until(WAIT_TIMEOUT, async || api.person(7).get(INBOX_PATH).await.status == 200).await;
    let written = async || {
        let items = list(&there, 7, "").await["items"].as_array().unwrap().clone();
        for (seq, read_at) in &read {
            let item = items.iter().find(|item| item["id"] == *seq).unwrap();
            assert_eq!(item["readAt"], *read_at, "entry {seq}");
        }
        assert_eq!(unread(&api, 7).await, 2);
        redis.command(&["EXISTS", "read_status:7"]).await.integer() == 0
    };
    // Buffered marks are merged into the list until they are written, and the list is the same afterwards.
    wait::until(WAIT_TIMEOUT, written).await;
    assert!(written().await);
}

#[tokio::test]
async fn read_marks_are_accepted_while_postgres_is_unavailable() {
    read_marks_are_accepted_while_the_database_is_unavailable(Flavour::Postgres).await;
}

#[tokio::test]
async fn read_marks_are_accepted_while_mariadb_is_unavailable() {
    read_marks_are_accepted_while_the_database_is_unavailable(Flavour::MariaDb).await;
}

#[tokio::test]
async fn read_marks_are_written_when_a_hub_stops() {
    if !tier::needs_engine("redis") || !tier::needs_engine("postgres") {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let hub = one_of_a_fleet(&redis.url(), &database).start().await;
    let api = Api::at(&hub.url(""));
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    api.person(7).call("PATCH", &format!("{INBOX_PATH}/1/read"), "").await.expect(200);
    let waiting = async || redis.command(&["HLEN", "read_status:7"]).await.integer();
    assert_eq!(waiting().await, 1, "the next flush is half a minute away");
    assert!(hub.terminate().await.success());
    assert_eq!(waiting().await, 0);
    hub.restart().await;
    assert_eq!(unread(&api, 7).await, 0);
    assert!(list(&api, 7, "").await["items"][0]["readAt"].is_string());
}

#[tokio::test]
async fn devices_get_no_count_without_the_marks_that_an_unavailable_redis_holds() {
    if !tier::needs_engine("redis") || !tier::needs_engine("postgres") {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let hub = one_of_a_fleet(&redis.url(), &database).start().await;
    let api = Api::at(&hub.url(""));
    for n in 1..=10 {
        notify(&api, &like_notification(&format!("e{n}"), &[7])).await.expect(202);
    }
    let mark = async |seq: u64| {
        let read = api.person(7).call("PATCH", &format!("{INBOX_PATH}/{seq}/read"), "").await.expect(200);
        read.result()["readAt"].clone()
    };
    let mut device = open(stream_request(&hub, 7)).await;
    device.take_events(10, WAIT_TIMEOUT).await;
    let mut versions = Vec::new();
    let mut first_mark = json!(null);
    for seq in 1..=7 {
        let read_at = mark(seq).await;
        if seq == 1 {
            first_mark = read_at;
        }
        versions.push(device.expect_event("read", WAIT_TIMEOUT).await.json());
    }
    redis.pause();
    notify(&api, &like_notification("e11", &[7])).await.expect(202);
    assert_ne!(mark(1).await, first_mark, "the first time is in Redis only");
    api.person(7).call("DELETE", &format!("{INBOX_PATH}/9"), "").await.expect(200);
    // The hub has compared its stream with the database, which has an entry that the device lacks.
    let repairs = async || hub.metrics().await.get("bus_repairs_total", &[]);
    let before = repairs().await;
    wait::until(WAIT_TIMEOUT, async || repairs().await > before).await;
    redis.resume();
    // The new entry, and the count after the deletion, in any order. The bus may not be subscribed again when the message
    // about the deleted entry is sent; then a message without entries follows.
    while versions.len() < 9 || versions.last().expect("messages")["unread"] != 3 {
        let event = device.next_event(WAIT_TIMEOUT).await.expect("the stream stays open");
        match event.event.as_str() {
            "notification" | "read" => versions.push(event.json()),
            other => assert_eq!(other, "ping", "{versions:?}"),
        }
        assert_ne!(event.event, "ping", "no further message: {versions:?}");
    }
    for pair in versions.windows(2) {
        let version = |at: usize| pair[at]["version"].as_u64().expect("a version");
        assert!(version(0) <= version(1), "{pair:?}");
        assert!(version(0) < version(1) || pair[0]["unread"] == pair[1]["unread"], "{pair:?}");
    }
    assert_eq!(versions.last().expect("messages")["unread"], 3, "{versions:?}");
    assert_eq!(unread(&api, 7).await, 3, "8, 10 and 11");
    let items = list(&api, 7, "").await["items"].as_array().expect("entries").clone();
    let first = items.iter().find(|item| item["id"] == 1).expect("entry 1");
    assert_eq!(first["readAt"], first_mark, "the earlier time stays");
}

async fn a_stream_opened_while_the_database_is_unavailable_reconnects(flavour: Flavour) {
    if !tier::needs_engine("redis") || !tier::needs_engine(flavour.name()) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let hub = one_of_a_fleet(&redis.url(), &server.database()).start().await;
    let api = Api::at(&hub.url(""));
    notify(&api, &like_notification("e1", &[7])).await.expect(202);
    server.pause();
    // An EventSource gives up for good on any status but 200.
    let mut refused = open(stream_request(&hub, 7)).await;
    let items = refused.read_to_end(WAIT_TIMEOUT).await;
    let closes = items.iter().filter_map(|item| match item {
        Item::Event(event) if event.event == "system.close" => event.json()["code"].as_u64(),
        _ => None,
    });
    let closes: Vec<u64> = closes.collect();
    assert!(matches!(closes[..], [3_000..3_500]), "{items:?}");
    assert!(items.iter().any(|item| matches!(item, Item::Retry(_))), "{items:?}");
    let mut source = ResumingClient::new(stream_request(&hub, 7)).max_retry_delay(Duration::from_millis(500));
    assert_eq!(source.next_event(WAIT_TIMEOUT).await.unwrap().event, "system.close");
    let refused = api.person(7).get(STREAM_PATH).await;
    refused.expect_error(503, "SSE5001");
    server.resume();
    let deadline = Instant::now() + WAIT_TIMEOUT;
    let first = loop {
        let event = source.next_event(WAIT_TIMEOUT).await.expect("a client that was not stopped");
        if event.event != "system.close" {
            break event;
        }
        assert!(Instant::now() < deadline, "the stream is closed although the database is back");
    };
    assert_eq!((first.event.as_str(), first.own_id.as_deref()), ("notification", Some("1")));
    notify(&api, &like_notification("e2", &[7])).await.expect(202);
    assert_eq!(source.next_event(WAIT_TIMEOUT).await.unwrap().own_id.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_stream_opened_while_postgres_is_unavailable_reconnects() {
    a_stream_opened_while_the_database_is_unavailable_reconnects(Flavour::Postgres).await;
}

#[tokio::test]
async fn a_stream_opened_while_mariadb_is_unavailable_reconnects() {
    a_stream_opened_while_the_database_is_unavailable_reconnects(Flavour::MariaDb).await;
}
