//! Publishing to registered rooms while the database is unavailable, and after Redis has lost all its data.

use std::time::{Duration, Instant};

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Api, wait};
use serde_json::{Value, json};

use super::{WAIT_TIMEOUT, can_run, health, hub, put};
use crate::rooms_registered::recipients::numbers;

fn event(room: u64, n: usize) -> Value {
    json!({"roomId": room, "eventType": "comment.created", "data": {"n": n}})
}

async fn a_cached_room_is_published_to_while_the_database_is_away(flavour: Flavour) {
    if !can_run(flavour) {
        return;
    }
    let (redis, server) = (Redis::start().await, Server::start(flavour).await);
    let hub = hub(&redis, &server.database()).movable_clock().start().await;
    let api = Api::at(&hub.url(""));
    for path in ["42", "42/members/7", "43"] {
        put(&api, &format!("/api/v1/rooms/{path}")).await;
    }
    let mut n = 0;
    let publish = async |n: &mut usize| {
        for _ in 0..10 {
            api.publish(event(42, *n)).await.expect(200);
            *n += 1;
        }
    };
    publish(&mut n).await;
    // The database is paused: a query would wait until the hub has noticed.
    server.pause();
    let started = Instant::now();
    publish(&mut n).await;
    wait::until(WAIT_TIMEOUT, async || health(&hub).await["degraded"].to_string().contains("database")).await;
    publish(&mut n).await;
    server.resume();
    wait::until(WAIT_TIMEOUT, async || health(&hub).await["status"] == "healthy").await;
    server.kill9().await;
    wait::until(WAIT_TIMEOUT, async || health(&hub).await["degraded"].to_string().contains("database")).await;
    publish(&mut n).await;
    // Publishing does not depend on how long the database is unavailable.
    hub.move_clock(Duration::from_secs(600)).await;
    publish(&mut n).await;
    for room in [43, 44] {
        // Room 43 is registered but was never published to; room 44 is unknown.
        api.publish(event(room, n)).await.expect_error(503, "COMMON503");
    }
    let batch = [event(42, n), event(43, n), event(42, n + 1)];
    let outcomes = api.publish_batch(&batch).await.expect(200).result()["results"].clone();
    assert_eq!(outcomes[1]["code"], "COMMON503", "{outcomes}");
    n += 2;
    assert!(started.elapsed() < WAIT_TIMEOUT, "requests must fail without waiting for the database");
    server.restart().await;
    wait::until(WAIT_TIMEOUT, async || health(&hub).await["status"] == "healthy").await;
    wait::until(WAIT_TIMEOUT, async || numbers(&api, 7).await.len() == n).await;
    assert_eq!(numbers(&api, 7).await, Vec::from_iter(0..n), "each event once");
    api.publish(event(43, n)).await.expect(200);
    api.publish(event(44, n)).await.expect_error(404, "ROOM4041");
}

#[tokio::test]
async fn a_cached_room_is_published_to_while_postgres_is_away() {
    a_cached_room_is_published_to_while_the_database_is_away(Flavour::Postgres).await;
}

#[tokio::test]
async fn a_cached_room_is_published_to_while_mariadb_is_away() {
    a_cached_room_is_published_to_while_the_database_is_away(Flavour::MariaDb).await;
}

#[tokio::test]
async fn cached_members_are_reread_after_redis_lost_its_data() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let (redis, server) = (Redis::start().await, Flavour::Postgres.shared().await);
    let database = server.database();
    let (one, other) = tokio::join!(hub(&redis, &database).start(), hub(&redis, &database).start());
    let (api, far) = (Api::at(&one.url("")), Api::at(&other.url("")));
    for path in ["42", "42/members/7", "42/members/8", "42/members/9"] {
        put(&api, &format!("/api/v1/rooms/{path}")).await;
    }
    for (n, api) in [&api, &far].into_iter().enumerate() {
        api.publish(event(42, n)).await.expect(200);
    }
    wait::until(WAIT_TIMEOUT, async || numbers(&api, 9).await == [0, 1]).await;
    // A change that no hub made, so that only the loss of the Redis data causes the members to be read again.
    server.execute(Server::database_name(&database), "DELETE FROM bongsu_members WHERE user_id = '7'");
    redis.command(&["FLUSHALL"]).await.expect_ok();
    for (n, api) in [&far, &api].into_iter().enumerate() {
        api.publish(event(42, n + 2)).await.expect(200);
    }
    api.call("DELETE", "/api/v1/rooms/42/members/8", "").await.expect(200);
    redis.command(&["FLUSHALL"]).await.expect_ok();
    wait::until(WAIT_TIMEOUT, async || far.publish(event(42, 4)).await.status == 200).await;
    wait::until(WAIT_TIMEOUT, async || numbers(&api, 9).await.last() == Some(&4)).await;
    assert_eq!(numbers(&api, 7).await, [0, 1], "events of the member removed before the first loss");
    assert!(!numbers(&api, 8).await.contains(&4), "events of the member removed before the second loss");
}

#[tokio::test]
async fn cached_members_are_reread_after_a_minute() {
    if !can_run(Flavour::Postgres) {
        return;
    }
    let (redis, server) = (Redis::start().await, Flavour::Postgres.shared().await);
    let database = server.database();
    let hub = hub(&redis, &database).movable_clock().start().await;
    let api = Api::at(&hub.url(""));
    for path in ["42", "42/members/7", "42/members/9"] {
        put(&api, &format!("/api/v1/rooms/{path}")).await;
    }
    api.publish(event(42, 0)).await.expect(200);
    // As after a hub died between the commit and the version update: the row is gone, and the version is unchanged.
    server.execute(Server::database_name(&database), "DELETE FROM bongsu_members WHERE user_id = '7'");
    hub.move_clock(Duration::from_secs(61)).await;
    api.publish(event(42, 1)).await.expect(200);
    wait::until(WAIT_TIMEOUT, async || numbers(&api, 9).await == [0, 1]).await;
    assert_eq!(numbers(&api, 7).await, [0]);
}
