//! Publishing to registered rooms while the database is away, and after Redis has lost everything.

use std::time::{Duration, Instant};

use bongsu_testkit::redis::Redis;
use bongsu_testkit::sql::{Flavour, Server};
use bongsu_testkit::{Api, wait};
use serde_json::{Value, json};

use super::{SOON, can_run, health, hub, put};
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
    // Frozen: whoever asked it would wait until the hub has noticed.
    server.pause();
    let started = Instant::now();
    publish(&mut n).await;
    wait::until(SOON, async || health(&hub).await["degraded"].to_string().contains("database")).await;
    publish(&mut n).await;
    server.resume();
    wait::until(SOON, async || health(&hub).await["status"] == "healthy").await;
    server.kill9().await;
    wait::until(SOON, async || health(&hub).await["degraded"].to_string().contains("database")).await;
    publish(&mut n).await;
    // However long it is away.
    hub.move_clock(Duration::from_secs(600)).await;
    publish(&mut n).await;
    for room in [43, 44] {
        // Registered but never published to; and unknown.
        api.publish(event(room, n)).await.expect_error(503, "COMMON503");
    }
    let batch = [event(42, n), event(43, n), event(42, n + 1)];
    let outcomes = api.publish_batch(&batch).await.expect(200).result()["results"].clone();
    assert_eq!(outcomes[1]["code"], "COMMON503", "{outcomes}");
    n += 2;
    assert!(started.elapsed() < SOON, "nobody waits for what is known to be away");
    server.restart().await;
    wait::until(SOON, async || health(&hub).await["status"] == "healthy").await;
    wait::until(SOON, async || numbers(&api, 7).await.len() == n).await;
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
async fn members_are_read_again_after_redis_has_lost_everything() {
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
    wait::until(SOON, async || numbers(&api, 9).await == [0, 1]).await;
    // A change that no hub made, so that only the loss tells of it.
    server.execute(Server::name_in(&database), "DELETE FROM bongsu_members WHERE user_id = '7'");
    redis.command(&["FLUSHALL"]).await.accepted();
    for (n, api) in [&far, &api].into_iter().enumerate() {
        api.publish(event(42, n + 2)).await.expect(200);
    }
    api.call("DELETE", "/api/v1/rooms/42/members/8", "").await.expect(200);
    redis.command(&["FLUSHALL"]).await.accepted();
    wait::until(SOON, async || far.publish(event(42, 4)).await.status == 200).await;
    wait::until(SOON, async || numbers(&api, 9).await.last() == Some(&4)).await;
    assert_eq!(numbers(&api, 7).await, [0, 1], "events of who was removed before the first loss");
    assert!(!numbers(&api, 8).await.contains(&4), "events of who was removed before the second loss");
}

#[tokio::test]
async fn members_are_read_again_after_a_minute_without_a_change_that_was_answered() {
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
    // As a hub leaves it that dies between the commit and the version: no version was changed.
    server.execute(Server::name_in(&database), "DELETE FROM bongsu_members WHERE user_id = '7'");
    hub.move_clock(Duration::from_secs(61)).await;
    api.publish(event(42, 1)).await.expect(200);
    wait::until(SOON, async || numbers(&api, 9).await == [0, 1]).await;
    assert_eq!(numbers(&api, 7).await, [0]);
}
