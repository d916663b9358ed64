//! Several hubs on Redis and one shared database, also while the database is unavailable.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by a panic with its reason")]

mod dead_letters;
mod membership;
mod redis_away;
mod revocations;
mod roles;
mod settings;

use std::time::{Duration, Instant};

use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::{Value, json};

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

fn hub(redis: &Redis, database: &str) -> Builder {
    let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("DATABASE_URL", database);
    hub.env("ROOMS_MODE", "registered").env("SSE_MAX_CONNECTIONS_PER_USER", 0)
}

async fn put(api: &Api, path: &str) {
    api.call("PUT", path, "").await.expect(200);
}

async fn health(hub: &Hub) -> Value {
    Api::new(hub).get("/health").await.expect(200).result().clone()
}

/// Waits until a hub reports to be healthy. On a busy machine it may have missed a check of one of its engines.
async fn is_healthy(hub: &Hub) {
    wait::until(WAIT_TIMEOUT, async || health(hub).await["status"] == "healthy").await;
}

/// Whether Redis and this database engine are available.
fn can_run(flavour: Flavour) -> bool {
    tier::needs_engine("redis") && tier::needs_engine(flavour.name())
}

async fn a_membership_change_at_one_hub_applies_at_the_other(flavour: Flavour) {
    if !can_run(flavour) {
        return;
    }
    let (redis, database) = (Redis::start().await, flavour.database().await);
    let (one, other) = tokio::join!(hub(&redis, &database).start(), hub(&redis, &database).start());
    let (api, far) = (Api::at(&one.url("")), Api::at(&other.url("")));
    put(&api, "/api/v1/rooms/42").await;
    let listen = |user: u64| Stream::request(&other, "/api/v1/rooms/42/stream").person(user);
    listen(7).open().await.err().unwrap().expect_error(403, "COMMON403");
    put(&api, "/api/v1/rooms/42/members/7").await;
    put(&far, "/api/v1/rooms/42/members/8").await;
    let mut gone = listen(7).open().await.ok().unwrap();
    let mut stays = listen(8).open().await.ok().unwrap();
    for n in 1..=3 {
        api.publish_to(42, "a.b", json!({"n": n})).await;
        assert_eq!(gone.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], n);
    }
    api.call("DELETE", "/api/v1/rooms/42/members/7", "").await.expect(200);
    far.publish_to(42, "a.b", json!({"n": 4})).await;
    let close = gone.expect_event("system.close", WAIT_TIMEOUT).await;
    assert_eq!((&close.json()["code"], &close.json()["reconnect"]), (&json!(3501), &json!(false)));
    listen(7).open().await.err().unwrap().expect_error(403, "COMMON403");
    for n in 1..=4 {
        assert_eq!(stays.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], n, "others must miss no event");
    }
    for hub in [&one, &other] {
        is_healthy(hub).await;
        assert!(!hub.data_dir().exists(), "a hub of a fleet must create no data folder");
        assert!(!hub.log().contains("pass%2Fword"), "the password is in the log");
    }
    let metrics = one.metrics().await;
    assert!(metrics.get("sql_query_duration_seconds_count", &[("query", "register")]) >= 1.0);
    assert!(metrics.get("sql_transaction_duration_seconds_count", &[("kind", "write")]) >= 1.0);
}

#[tokio::test]
async fn a_membership_change_at_one_hub_applies_at_the_other_on_postgres() {
    a_membership_change_at_one_hub_applies_at_the_other(Flavour::Postgres).await;
}

#[tokio::test]
async fn a_membership_change_at_one_hub_applies_at_the_other_on_mariadb() {
    a_membership_change_at_one_hub_applies_at_the_other(Flavour::MariaDb).await;
}

async fn an_unavailable_database_is_reported_and_used_again_when_it_returns(flavour: Flavour) {
    if !can_run(flavour) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let hub = hub(&redis, &server.database()).start().await;
    let api = Api::at(&hub.url(""));
    put(&api, "/api/v1/rooms/42").await;
    put(&api, "/api/v1/rooms/42/members/7").await;
    let mut stream = Stream::request(&hub, "/api/v1/rooms/42/stream").person(7).open().await.ok().unwrap();
    server.kill9().await;
    wait::until(WAIT_TIMEOUT, async || health(&hub).await["degraded"].to_string().contains("database")).await;
    let started = Instant::now();
    for _ in 0..20 {
        api.call("PUT", "/api/v1/rooms/43", "").await.expect_error(503, "COMMON503");
        api.person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect_error(503, "COMMON503");
    }
    assert!(started.elapsed() < WAIT_TIMEOUT, "requests must fail without waiting for the database");
    server.restart().await;
    wait::until(WAIT_TIMEOUT, async || health(&hub).await["status"] == "healthy").await;
    put(&api, "/api/v1/rooms/43").await;
    api.publish_to(42, "a.b", json!({"n": 1})).await;
    stream.expect_event("a.b", WAIT_TIMEOUT).await;
}

#[tokio::test]
async fn an_unavailable_postgres_is_reported_and_used_again_when_it_returns() {
    an_unavailable_database_is_reported_and_used_again_when_it_returns(Flavour::Postgres).await;
}

#[tokio::test]
async fn an_unavailable_mariadb_is_reported_and_used_again_when_it_returns() {
    an_unavailable_database_is_reported_and_used_again_when_it_returns(Flavour::MariaDb).await;
}

#[tokio::test]
async fn hubs_with_different_records_do_not_form_a_fleet() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let redis = Redis::start().await;
    let (one, other) = (Flavour::Postgres.database().await, Flavour::Postgres.database().await);
    let first = hub(&redis, &one).start().await;
    let (status, log) = hub(&redis, &other).start_expecting_failure().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("DATABASE_URL") && log.contains("has records in a database"), "{log}");
    // The same database under another host name is recognised as the same.
    let by_name = one.replace("127.0.0.1", "localhost");
    let second = hub(&redis, &by_name).start().await;
    is_healthy(&second).await;
    drop(first);
}

async fn a_database_without_redis_is_locked_by_one_hub(flavour: Flavour) {
    if !can_run(flavour) {
        return;
    }
    let database = flavour.database().await;
    let alone = || Hub::builder(BONGSU).env("DATABASE_URL", &database);
    let first = alone().start().await;
    let (status, log) = alone().start_expecting_failure().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("DATABASE_URL") && log.contains("REDIS_URL"), "{log}");
    is_healthy(&first).await;
    // A killed hub does not block the next one.
    first.kill9().await;
    alone().start().await;
}

#[tokio::test]
async fn a_postgres_without_redis_is_locked_by_one_hub() {
    a_database_without_redis_is_locked_by_one_hub(Flavour::Postgres).await;
}

#[tokio::test]
async fn a_mariadb_without_redis_is_locked_by_one_hub() {
    a_database_without_redis_is_locked_by_one_hub(Flavour::MariaDb).await;
}

#[tokio::test]
async fn a_start_without_its_database_fails_with_a_message_of_one_line() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let redis = Redis::start().await;
    let server = Flavour::Postgres.shared().await;
    // No server listens at this address.
    let nowhere = server.url_at("127.0.0.1:9".parse().unwrap(), "app");
    for (url, why) in [(server.url("nowhere"), "does not exist"), (nowhere, "127.0.0.1:9")] {
        let (status, log) = hub(&redis, &url).start_expecting_failure().await;
        assert_eq!(status.code(), Some(1), "{log}");
        let last = log.lines().last().unwrap_or_default();
        assert!(last.contains("DATABASE_URL") && last.contains(why) && !log.contains("word%3A"), "{log}");
    }
}

#[tokio::test]
async fn one_hub_keeps_events_in_its_folder_and_records_in_a_database() {
    if !tier::needs_engine("postgres") {
        return;
    }
    let database = Flavour::Postgres.database().await;
    let start = || {
        let hub = Hub::builder(BONGSU).without_env("REDIS_URL").env("DATABASE_URL", &database);
        hub.env("ROOMS_MODE", "registered").start()
    };
    let hub = start().await;
    let api = Api::at(&hub.url(""));
    put(&api, "/api/v1/rooms/42").await;
    put(&api, "/api/v1/rooms/42/members/7").await;
    api.publish_to(42, "a.b", json!({"n": 1})).await;
    hub.restart().await;
    let page = api.person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"].as_array().unwrap().len(), 1);
    drop(hub);
    // Another data folder has other events, and the same rooms and members.
    let hub = start().await;
    let api = Api::at(&hub.url(""));
    let page = api.person(7).get("/api/v1/rooms/42/events?since=0-0").await.expect(200);
    assert_eq!(page.result()["events"], json!([]));
}

#[tokio::test]
async fn doctor_checks_the_database_and_changes_nothing() {
    if !tier::needs_engine("postgres") || !tier::needs_engine("mariadb") {
        return;
    }
    let told = |url: &str| {
        let mut command = std::process::Command::new(BONGSU);
        command.arg("doctor").env_clear().env("DATABASE_URL", url).env("REDIS_URL", "redis://127.0.0.1:9");
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    for flavour in [Flavour::Postgres, Flavour::MariaDb] {
        let (server, url) = (flavour.shared().await, flavour.database().await);
        let shown = url.replace("pass%2Fword%3A1", "").replace(":@", "@");
        let fine = format!("ok    {shown} answers, is of this version and keeps what it acknowledges");
        let said = told(&url);
        assert!(said.contains(&fine), "{said}");
        assert!(said.contains("ok    the clock of the database agrees with this machine's"), "{said}");
        assert!(said.contains("BAD   Redis cannot be reached"), "{said}");
        assert!(server.try_execute(Server::database_name(&url), "SELECT * FROM bongsu_migrations").is_err());
        let said = told(&server.url("nowhere"));
        assert!(said.contains("BAD   the database at") && !said.contains("word"), "{said}");
    }
    let weak = Server::start_with(Flavour::Postgres, &["synchronous_commit=off"]).await;
    let said = told(&weak.database());
    assert!(said.contains("note  database: synchronous_commit is off"), "{said}");
}
