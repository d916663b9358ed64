//! `bongsu explain` reports how an event was processed, while the hub runs and after it has stopped, and
//! changes no data.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use bongsu_testkit::engine::needs_embedded;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::Flavour;
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, error_line, run, stdout_of};
use crate::BONGSU;

const NOTIFY_PATH: &str = "/api/v1/members/notify";

fn like(event: &str, targets: &[u64]) -> Value {
    json!({"eventId": event, "type": "POST_LIKE", "targetIds": targets, "actorId": 2, "refId": 100})
}

/// The output of `bongsu explain --json`.
fn explained(arguments: &[&str], environment: &[(&str, &str)]) -> Value {
    let arguments: Vec<&str> = ["explain", "--json"].iter().chain(arguments).copied().collect();
    serde_json::from_str(&stdout_of(&run(&arguments, environment))).unwrap()
}

/// Creates a notification for five people: one has read it, one has deleted it, and three do not want it on
/// their devices.
async fn make_history(api: &Api) {
    let settings = async |user: u64, body: &str| {
        api.person(user).call("PUT", "/api/notifications/settings", body.to_owned()).await.expect(200);
    };
    settings(9, r#"{"types":{"POST_LIKE":false}}"#).await;
    settings(10, r#"{"enabled":false}"#).await;
    settings(11, r#"{"channels":{"IN_APP":false}}"#).await;
    api.post(NOTIFY_PATH, like("e0", &[7])).await.expect(202);
    api.post(NOTIFY_PATH, like("e1", &[7, 8, 9, 10, 11])).await.expect(202);
    api.person(7).call("PATCH", "/api/notifications/e1/read", "").await.expect(200);
    api.person(8).call("DELETE", "/api/notifications/e1", "").await.expect(200);
}

/// Checks the explanation of the history that `make_history` creates, on any database.
fn check_history(environment: &[(&str, &str)]) {
    let all = explained(&["e1"], environment);
    assert_eq!(all["derived"], json!({"people": 5, "unread": 3, "read": 1, "deleted": 1}), "{all}");
    let accepted = &all["accepted"];
    assert_eq!((&accepted["type"], &accepted["refId"]), (&json!("POST_LIKE"), &json!(100)), "{all}");
    assert_eq!((&accepted["actorId"], &all["person"]), (&json!(2), &Value::Null), "{all}");
    assert!(accepted["at"].as_str().unwrap().ends_with('Z'), "{all}");
    assert!(all["notKnown"].to_string().contains("who was connected"), "{all}");
    let person = |id: &str| explained(&["e1", "--person", id], environment)["person"].clone();
    let reader = person("7");
    assert_eq!((&reader["entry"]["id"], &reader["notSent"]), (&json!(2), &Value::Null), "{reader}");
    assert!(reader["entry"]["readAt"].is_string() && reader["entry"]["deletedAt"].is_null(), "{reader}");
    assert!(person("8")["entry"]["deletedAt"].is_string());
    for (id, why) in [("9", "this type"), ("10", "notifications are"), ("11", "IN_APP")] {
        let silent = person(id);
        assert!(silent["notSent"].as_str().unwrap().contains(why), "{silent}");
        assert!(silent["entry"]["readAt"].is_null(), "{silent}");
    }
    assert_eq!(person("12")["entry"], Value::Null);
    let text = stdout_of(&run(&["explain", "e1", "--person", "9"], environment));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("event      e1"), "{text}");
    assert!(
        lines[1].starts_with("accepted   2") && lines[1].contains("POST_LIKE, about 100, by 2"),
        "{text}"
    );
    assert_eq!(lines[2], "derived    5 people have an entry: 3 unread, 1 read, 1 deleted", "{text}");
    assert!(
        lines[3].starts_with("person     9: number 1, created") && lines[3].ends_with("unread"),
        "{text}"
    );
    assert_eq!(lines[4], "live       not sent: this type is switched off", "{text}");
    assert!(lines[5..].iter().all(|line| line.starts_with("not known  ")), "{text}");
    let unknown = error_line(&run(&["explain", "e2"], environment), 1);
    assert!(unknown.contains("nothing is known of e2"), "{unknown}");
}

#[tokio::test]
async fn explain_reports_a_notification_while_the_hub_runs_and_when_it_is_stopped() {
    if !needs_embedded("it looks at the file") {
        return;
    }
    let hub = Hub::builder(BONGSU).start().await;
    let data = hub.data_dir().to_str().unwrap().to_owned();
    let environment = [("DATA_DIR", data.as_str())];
    make_history(&Api::new(&hub)).await;
    check_history(&environment);
    Api::new(&hub).post(NOTIFY_PATH, like("later", &[7])).await.expect(202);
    hub.terminate().await;
    let file = hub.data_dir().join("bongsu.db");
    let before = std::fs::read(&file).unwrap();
    check_history(&environment);
    assert!(std::fs::read(&file).unwrap() == before, "explain must not change the file");
    assert_eq!(explained(&["later"], &environment)["derived"]["people"], 1);
    for wrong in [&["explain", "a b"][..], &["explain", "e1", "--person", "a b"]] {
        error_line(&run(wrong, &environment), 2);
    }
    let nowhere = tempfile::tempdir().unwrap();
    error_line(&run(&["explain", "e1"], &[("DATA_DIR", nowhere.path().to_str().unwrap())]), 3);
    assert_eq!(std::fs::read_dir(nowhere.path()).unwrap().count(), 0, "explain must create no file");
    let off = [("RECORDS", "off"), ("REDIS_URL", "redis://127.0.0.1:1")];
    assert!(error_line(&run(&["explain", "e1"], &off), 1).contains("RECORDS"));
}

#[test]
fn a_file_of_an_older_schema_is_named_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let environment = [("DATA_DIR", folder.path().to_str().unwrap()), ("RUST_LOG", "error")];
    stdout_of(&run(&["migrate"], &environment));
    let file = rusqlite::Connection::open(folder.path().join("bongsu.db")).unwrap();
    file.execute("DELETE FROM migrations WHERE part = 'inbox'", []).unwrap();
    let applied = || {
        let query = "SELECT count(*) FROM migrations WHERE part = 'inbox'";
        file.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let line = error_line(&run(&["explain", "e1"], &environment), 3);
    assert!(line.contains("older version") && line.contains("inbox migration 1"), "{line}");
    assert_eq!(applied(), 0, "explain must apply no migration");
}

#[tokio::test]
async fn explain_finds_a_room_event_whose_follow_up_record_is_pending() {
    if !needs_embedded("it looks at the file") {
        return;
    }
    let hub = Hub::builder(BONGSU).env("BONGSU_CRASH_POINT", "after-deliver").start().await;
    let data = hub.data_dir().to_str().unwrap().to_owned();
    let environment = [("DATA_DIR", data.as_str())];
    let event = json!({"roomId": "a:b", "eventType": "comment.created", "data": {}, "publisherId": 3,
        "recipients": [7, 8]});
    // The hub dies after it has stored the event and before it has made an inbox entry.
    let _ = Api::new(&hub).try_publish(&event).await;
    wait::until(WAIT_TIMEOUT, async || hub.has_exited()).await;
    let record: String = rusqlite::Connection::open(hub.data_dir().join("bongsu.db"))
        .and_then(|file| file.query_row("SELECT record FROM follow_ups", [], |row| row.get(0)))
        .unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let id = format!("a:b:{}", record["streamId"].as_str().unwrap());
    let waits = explained(&[&id, "--person", "7"], &environment);
    assert_eq!((&waits["waiting"], &waits["derived"]), (&json!(2), &Value::Null), "{waits}");
    assert_eq!(
        (&waits["person"]["waits"], &waits["person"]["entry"]),
        (&json!(true), &Value::Null),
        "{waits}"
    );
    let accepted = &waits["accepted"];
    assert_eq!(
        (&accepted["type"], &accepted["refId"]),
        (&json!("comment.created"), &json!("a:b")),
        "{waits}"
    );
    assert_eq!(accepted["actorId"], 3, "{waits}");
    let text = stdout_of(&run(&["explain", &id], &environment));
    assert!(text.contains("the entries of 2 people are not made yet"), "{text}");
    hub.restart_with(&[("BONGSU_CRASH_POINT", "")]).await;
    wait::until(WAIT_TIMEOUT, async || explained(&[&id], &environment)["derived"]["people"] == 2).await;
    wait::until(WAIT_TIMEOUT, async || explained(&[&id], &environment)["waiting"].is_null()).await;
    // An event without recipients is only in the room's log, with the trace that its publisher sent.
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced = Api::new(&hub).with_header("traceparent", trace);
    let traced = traced.publish_to("a:b", "like.toggled", json!({})).await;
    let text = stdout_of(&run(&["explain", &format!("a:b:{traced}")], &environment));
    assert!(text.contains("trace      4bf92f3577b34da6a3ce929d0e0e4736\n"), "{text}");
    let malformed = Api::new(&hub).with_header("traceparent", "00-nonsense");
    let malformed = malformed.publish_to("a:b", "like.toggled", json!({})).await;
    assert_eq!(explained(&[&format!("a:b:{malformed}")], &environment)["traceparent"], Value::Null);
    let silent = Api::new(&hub).publish_to("a:b", "like.toggled", json!({})).await;
    let silent = explained(&[&format!("a:b:{silent}")], &environment);
    assert_eq!((&silent["accepted"]["type"], &silent["derived"]), (&json!("like.toggled"), &Value::Null));
    error_line(&run(&["explain", "a:b:1-0"], &environment), 1);
}

async fn explain_reads_the_database_and_does_not_change_its_schema(flavour: Flavour) {
    if !tier::needs_engine(flavour.name()) {
        return;
    }
    let database = flavour.database().await;
    let folder = tempfile::tempdir().unwrap();
    let environment = [("DATABASE_URL", database.as_str()), ("DATA_DIR", folder.path().to_str().unwrap())];
    for _ in 0..2 {
        let older = error_line(&run(&["explain", "e1"], &environment), 3);
        assert!(older.contains("older version"), "{older}");
    }
    let hub = Hub::builder(BONGSU).env("DATABASE_URL", &database).start().await;
    make_history(&Api::new(&hub)).await;
    check_history(&environment);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "explain must create no file");
}

#[tokio::test]
async fn explain_reads_postgresql_and_does_not_change_its_schema() {
    explain_reads_the_database_and_does_not_change_its_schema(Flavour::Postgres).await;
}

#[tokio::test]
async fn explain_reads_mariadb_and_does_not_change_its_schema() {
    explain_reads_the_database_and_does_not_change_its_schema(Flavour::MariaDb).await;
}

#[tokio::test]
async fn explain_shows_pending_read_marks_for_one_person() {
    if !(tier::needs_engine("redis") && tier::needs_engine("postgres")) {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let url = redis.url();
    let environment = [("DATABASE_URL", database.as_str()), ("REDIS_URL", url.as_str())];
    let hub = Hub::builder(BONGSU)
        .env("REDIS_URL", &url)
        .env("DATABASE_URL", &database)
        .env("WRITE_BEHIND_INTERVAL_SECS", 3_600)
        .start()
        .await;
    let api = Api::new(&hub);
    api.post(NOTIFY_PATH, like("e1", &[7])).await.expect(202);
    api.person(7).call("PATCH", "/api/notifications/1/read", "").await.expect(200);
    let all = explained(&["e1"], &environment);
    assert_eq!(all["derived"]["unread"], 1, "the read mark is only in Redis");
    assert!(all["notKnown"].to_string().contains("last half minute"), "{all}");
    let entry = explained(&["e1", "--person", "7"], &environment)["person"]["entry"].clone();
    assert!(entry["readAt"].is_string() && entry["markWaits"] == true, "{entry}");
    redis.kill9().await;
    let without = explained(&["e1", "--person", "7"], &environment);
    assert!(without["person"]["entry"]["readAt"].is_null(), "{without}");
    assert!(without["notKnown"].to_string().contains("cannot be asked"), "{without}");
}

#[tokio::test]
async fn explain_finds_a_room_event_in_redis_with_its_entries() {
    if !(tier::needs_engine("redis") && tier::needs_engine("postgres")) {
        return;
    }
    let (redis, database) = (Redis::start().await, Flavour::Postgres.database().await);
    let url = redis.url();
    let environment = [("DATABASE_URL", database.as_str()), ("REDIS_URL", url.as_str())];
    // The hub dies after it has made the inbox entries and before it has removed the follow-up record.
    let hub = Hub::builder(BONGSU)
        .env("REDIS_URL", &url)
        .env("DATABASE_URL", &database)
        .env("BONGSU_CRASH_POINT", "after-derivation")
        .start()
        .await;
    let event = json!({"roomId": "a:b", "eventType": "comment.created", "data": {}, "publisherId": 3,
        "recipients": [7, 8]});
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let api = Api::new(&hub).with_header("traceparent", trace);
    let answer = api.publish(&event).await.expect(200);
    let id = format!("a:b:{}", answer.result()["streamId"].as_str().unwrap());
    wait::until(WAIT_TIMEOUT, async || hub.has_exited()).await;
    let record = redis.command(&["LINDEX", "{room:events:a:b}:follow-ups", "0"]).await;
    let record: Value = serde_json::from_str(record.text()).unwrap();
    assert_eq!(record["traceparent"], trace);
    let found = explained(&[&id, "--person", "7"], &environment);
    assert_eq!((&found["waiting"], &found["derived"]["people"]), (&json!(2), &json!(2)), "{found}");
    assert_eq!(
        (&found["accepted"]["type"], &found["accepted"]["actorId"]),
        (&json!("comment.created"), &json!(3))
    );
    assert!(!found["notKnown"].to_string().contains("whether the room"), "{found}");
    assert_eq!(found["traceparent"], trace, "{found}");

    // An entry that another program stored: explained with RECORDS=off, and again while Redis is unreachable.
    let words = [
        "XADD",
        "room:events:a:b",
        "*",
        "type",
        "a.stored",
        "payload",
        "{}",
        "publisher_id",
        "",
        "timestamp",
        "2026-02-16T10:30:00Z",
    ];
    let stored = format!("a:b:{}", redis.command(&words).await.text());
    let without = [("RECORDS", "off"), ("REDIS_URL", url.as_str())];
    let found = explained(&[&stored], &without);
    assert_eq!(found["accepted"]["at"], "2026-02-16T10:30:00.000Z", "{found}");
    assert!(found["notKnown"].to_string().contains("RECORDS"), "{found}");
    assert!(error_line(&run(&["explain", "a:b:1-0"], &environment), 1).contains("nothing is known"));
    redis.kill9().await;
    let found = explained(&[&id], &environment);
    assert!(found["notKnown"].to_string().contains("Redis cannot be asked"), "{found}");
}
