//! Revocations survive a Redis that loses its data: they are stored in the database as well, and hubs that remember
//! them write them back.

use bongsu_testkit::hub::Builder;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::tokens::{self, Claims};
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::json;

use super::{WAIT_TIMEOUT, can_run, hub};
use crate::BONGSU;

const ROOM_PATH: &str = "/api/v1/rooms/1";

fn open_rooms(redis: &Redis, database: &str) -> Builder {
    hub(redis, database).env("ROOMS_MODE", "open")
}

fn token_before_revocation() -> String {
    Claims::new(7).iat(tokens::now() - 60).sign()
}

async fn revoke(hub: &Hub) {
    Api::at(&hub.url("")).admin().post("/api/admin/users/7/revoke", json!({})).await.expect(200);
}

/// Checks that this hub refuses the old token, accepts a newer one, and still serves other people.
async fn expect_revoked(hub: &Hub, old: &str) {
    let events = format!("{ROOM_PATH}/events?since=0-0");
    let api = Api::at(&hub.url(""));
    api.bearer(old).get(&events).await.expect_error(401, "AUTH4001");
    let opened = Stream::request(hub, &format!("{ROOM_PATH}/stream")).bearer(old).open().await;
    opened.err().expect("a refusal").expect_error(401, "AUTH4001");
    let new = Claims::new(7).iat(tokens::now() + 1).sign();
    api.bearer(&new).get(&events).await.expect(200);
    api.person(8).get(&events).await.expect(200);
}

async fn wait_written_back(redis: &Redis) {
    let is_there = async || redis.command(&["EXISTS", "{orders}:revoked:7"]).await.integer() == 1;
    wait::until(WAIT_TIMEOUT, is_there).await;
}

async fn a_revocation_survives_the_loss_of_redis_data(flavour: Flavour) {
    if !can_run(flavour) {
        return;
    }
    let (redis, database) = (Redis::start().await, flavour.database().await);
    let (one, other) =
        tokio::join!(open_rooms(&redis, &database).start(), open_rooms(&redis, &database).start());
    let old = token_before_revocation();
    Api::at(&other.url("")).bearer(&old).get(&format!("{ROOM_PATH}/events?since=0-0")).await.expect(200);
    revoke(&one).await;
    redis.command(&["FLUSHALL"]).await.expect_ok();
    wait_written_back(&redis).await;
    for hub in [&one, &other] {
        expect_revoked(hub, &old).await;
    }
    // No running hub remembers the revocation.
    one.kill9().await;
    other.kill9().await;
    redis.command(&["FLUSHALL"]).await.expect_ok();
    for hub in [&one, &other] {
        hub.restart().await;
        expect_revoked(hub, &old).await;
    }
    assert_eq!(redis.command(&["EXISTS", "{orders}:revoked:7"]).await.integer(), 1);
}

#[tokio::test]
async fn a_revocation_in_postgres_survives_the_loss_of_redis_data() {
    a_revocation_survives_the_loss_of_redis_data(Flavour::Postgres).await;
}

#[tokio::test]
async fn a_revocation_in_mariadb_survives_the_loss_of_redis_data() {
    a_revocation_survives_the_loss_of_redis_data(Flavour::MariaDb).await;
}

#[tokio::test]
async fn a_revocation_is_in_force_even_if_redis_or_the_database_refused_it() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(Flavour::Postgres).await);
    let database = server.database();
    let (one, other) =
        tokio::join!(open_rooms(&redis, &database).start(), open_rooms(&redis, &database).start());
    let old = token_before_revocation();
    let revoke = async || Api::at(&one.url("")).admin().post("/api/admin/users/7/revoke", json!({})).await;
    let mut stream =
        Stream::request(&other, &format!("{ROOM_PATH}/stream")).bearer(&old).open().await.unwrap();
    redis.kill9().await;
    revoke().await.expect_error(503, "REDIS5001");
    redis.restart().await;
    wait_written_back(&redis).await;
    assert_eq!(stream.expect_event("system.close", WAIT_TIMEOUT).await.json()["code"], 3502);
    for hub in [&one, &other] {
        expect_revoked(hub, &old).await;
    }
    // Redis has the revocation, the database does not: the operator gets an error and repeats the request.
    let old = Claims::new(9).iat(tokens::now() - 60).sign();
    server.kill9().await;
    let revoke = async || Api::at(&one.url("")).admin().post("/api/admin/users/9/revoke", json!({})).await;
    revoke().await.expect_error(503, "COMMON503");
    assert_eq!(redis.command(&["EXISTS", "{orders}:revoked:9"]).await.integer(), 1);
    server.restart().await;
    wait::until(WAIT_TIMEOUT, async || revoke().await.status == 200).await;
    Api::at(&other.url(""))
        .bearer(&old)
        .get(&format!("{ROOM_PATH}/events?since=0-0"))
        .await
        .expect_error(401, "AUTH4001");
}

#[tokio::test]
async fn without_records_a_hub_restores_the_revocations_that_it_remembers() {
    if !tier::needs_engine("redis") {
        return;
    }
    // A Redis without persistence: its data is gone after a restart.
    let redis = Redis::builder().setting("appendonly", "no").start().await;
    let start = || Hub::builder(BONGSU).env("REDIS_URL", redis.url()).env("RECORDS", "off").start();
    let remembers = start().await;
    let old = token_before_revocation();
    revoke(&remembers).await;
    redis.restart().await;
    wait_written_back(&redis).await;
    let started_later = start().await;
    for hub in [&remembers, &started_later] {
        expect_revoked(hub, &old).await;
    }
}
