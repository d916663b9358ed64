//! Settings of Redis and of databases under which acknowledged changes may be lost: the hub names them in its startup
//! log and in `/health`, whose status is `degraded`.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic with its reason")]

use std::time::Duration;

use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::Value;

use crate::BONGSU;

const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// Starts a hub, and checks that its health and its log name exactly these settings of an engine, in this order.
async fn expect_named(hub: Builder, engine: &str, settings: &[&str]) {
    let hub = hub.start().await;
    let api = Api::at(&hub.url("")).anonymous();
    let degraded = async || -> Vec<String> {
        let health = api.get("/health").await.expect(200).result().clone();
        let reasons: Vec<String> = serde_json::from_value(health["degraded"].clone()).unwrap();
        let status = if reasons.is_empty() { "healthy" } else { "degraded" };
        assert_eq!(health["status"], status, "{health}");
        reasons
    };
    // The settings of Redis are checked concurrently with the start.
    wait::holds_within(WAIT_TIMEOUT, async || degraded().await.len() == settings.len()).await;
    let reasons = degraded().await;
    assert_eq!(reasons.len(), settings.len(), "expected {settings:?}, and health says {reasons:?}");
    let warnings: Vec<String> = hub.log().lines().filter_map(finding).collect();
    for (reason, setting) in reasons.iter().zip(settings) {
        assert!(reason.starts_with(&format!("{engine}: {setting} is ")), "{setting}: {reason}");
        assert!(warnings.contains(reason), "{reason:?} is not in the log: {warnings:?}");
    }
}

/// The finding of a log line if it is a warning about the settings of an engine.
fn finding(line: &str) -> Option<String> {
    let line: Value = serde_json::from_str(line).ok()?;
    let is_warning = line["level"] == "WARN";
    is_warning.then(|| line["fields"]["finding"].as_str().map(str::to_owned))?
}

#[tokio::test]
async fn weak_settings_of_redis_are_named() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    for (append_only, append_fsync, policy, named) in [
        ("yes", "always", "noeviction", &[][..]),
        ("yes", "everysec", "noeviction", &["appendfsync"]),
        ("yes", "no", "noeviction", &["appendfsync"]),
        ("yes", "always", "allkeys-lru", &["maxmemory-policy"]),
        ("yes", "everysec", "volatile-ttl", &["appendfsync", "maxmemory-policy"]),
        ("no", "always", "noeviction", &["appendonly"]),
    ] {
        let settings = ["appendonly", append_only, "appendfsync", append_fsync, "maxmemory-policy", policy];
        redis.command(&[&["CONFIG", "SET"], &settings[..]].concat()).await.expect_ok();
        let hub = Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("RECORDS", "off");
        expect_named(hub, "redis", named).await;
    }
}

/// A hub that keeps events in its data folder and records in this database.
fn hub_on(database: &str) -> Builder {
    Hub::builder(BONGSU).without_env("REDIS_URL").env("DATABASE_URL", database)
}

#[tokio::test]
async fn weak_settings_of_postgres_are_named() {
    if !tier::needs_engine("postgres") {
        return;
    }
    let (safe, unsynced) =
        (Flavour::Postgres.shared().await, Server::start_with(Flavour::Postgres, &["fsync=off"]).await);
    for (server, commit, named) in [
        (safe, "on", &[][..]),
        (safe, "off", &["synchronous_commit"]),
        (&unsynced, "on", &["fsync"]),
        (&unsynced, "off", &["synchronous_commit", "fsync"]),
    ] {
        let url = server.database();
        let name = Server::database_name(&url);
        server.execute(name, &format!("ALTER DATABASE {name} SET synchronous_commit = {commit}"));
        expect_named(hub_on(&url), "database", named).await;
    }
}

#[tokio::test]
async fn weak_settings_of_mariadb_are_named() {
    if !tier::needs_engine("mariadb") {
        return;
    }
    let server = Server::start_with(Flavour::MariaDb, &["log-bin=log"]).await;
    for (flush, sync_binlog, named) in [
        (1, 1, &[][..]),
        (0, 1, &["innodb_flush_log_at_trx_commit"]),
        (2, 1, &["innodb_flush_log_at_trx_commit"]),
        (1, 0, &["sync_binlog"]),
        (2, 100, &["innodb_flush_log_at_trx_commit", "sync_binlog"]),
    ] {
        let settings =
            format!("innodb_flush_log_at_trx_commit = {flush}, GLOBAL sync_binlog = {sync_binlog}");
        server.execute("", &format!("SET GLOBAL {settings}"));
        expect_named(hub_on(&server.database()), "database", named).await;
    }
}
