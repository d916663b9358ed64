//! What happens when Redis is killed, stands still or forgets.

use std::time::Duration;

use bongsu_limits::connections::Refused;
use bongsu_limits::{Limit, Rate, bucket};
use bongsu_testkit::{Redis, tier, wait};

use crate::hub::{
    CHECK_INTERVAL, Hub, Open, PATIENCE, Registry, only_the_oldest_are_replaced, refuse, replace,
};

/// A Redis and two hubs. None where there is no Redis.
async fn redis_with_hubs(limit: Limit) -> Option<(Redis, [Hub; 2])> {
    if !tier::needs_engine("redis") {
        return None;
    }
    let (redis, registry) = (Redis::start().await, Registry::default());
    let hub = async || Hub::start(&redis.url(), "", &registry, limit.clone(), CHECK_INTERVAL).await;
    let hubs = [hub().await, hub().await];
    Some((redis, hubs))
}

/// How many connections of `anna` count.
async fn counted(redis: &Redis) -> i64 {
    redis.command(&["ZCARD", "sse:test:{anna}"]).await.integer()
}

#[tokio::test]
async fn while_redis_is_away_nobody_enters_and_who_is_in_stays() {
    let Some((redis, [one, two])) = redis_with_hubs(refuse(2)).await else { return };
    let _open = one.enter("anna").await.unwrap();
    let given_back = one.enter("anna").await.unwrap();
    redis.kill9().await;
    assert!(matches!(two.enter("anna").await, Err(Refused::Away(_))));
    let rate = Rate::new(1.0, 1).unwrap();
    assert!(matches!(two.buckets.take("anna", rate, 1).await, Err(bucket::Refused::Away(_))));
    // What Redis could not be told is told later.
    drop(given_back);
    redis.restart().await;
    let _other = two.enters("anna").await;
    wait::until(PATIENCE, || async { counted(&redis).await == 2 }).await;
    assert!(two.is_full("anna").await, "the first connection still counts");
}

#[tokio::test]
async fn while_redis_is_away_nobody_is_replaced() {
    let Some((redis, [one, two])) = redis_with_hubs(replace(2)).await else { return };
    let mut open = vec![one.enter("anna").await.unwrap(), two.enter("anna").await.unwrap()];
    for kills in [true, false] {
        if kills {
            redis.kill9().await;
        } else {
            redis.pause();
        }
        for hub in [&one, &two] {
            assert!(matches!(hub.enter("anna").await, Err(Refused::Away(_))));
        }
        if kills {
            redis.restart().await;
        } else {
            redis.resume();
        }
        // Those that gave up make nobody go, also when Redis reads of them later.
        wait::until(PATIENCE, || async { counted(&redis).await == 2 }).await;
        only_the_oldest_are_replaced(&open, 0).await;
    }
    open.push(one.enters("anna").await);
    only_the_oldest_are_replaced(&open, 1).await;
}

#[tokio::test]
async fn a_redis_that_stands_still_holds_up_nobody_for_long_and_keeps_no_ghost() {
    let Some((redis, [one, two])) = redis_with_hubs(refuse(2)).await else { return };
    let _open = one.enter("anna").await.unwrap();
    redis.pause();
    // It may yet read what was sent: that must not count then.
    for hub in [&one, &two] {
        assert!(matches!(hub.enter("anna").await, Err(Refused::Away(_))));
    }
    redis.resume();
    let _other = two.enters("anna").await;
    assert!(two.is_full("anna").await);
    // The two that gave up have left nothing behind.
    wait::until(PATIENCE, || async { one.is_full("anna").await && two.is_full("anna").await }).await;
    assert_eq!(counted(&redis).await, 2);
}

#[tokio::test]
async fn after_redis_lost_everything_connections_are_put_back() {
    let Some((redis, [one, two])) = redis_with_hubs(refuse(1)).await else { return };
    let mut open = Vec::new();
    for n in 0..600 {
        open.push(one.enter(&format!("user{n}")).await.unwrap());
    }
    redis.command(&["FLUSHALL"]).await.accepted();
    for n in (0..600).step_by(7) {
        wait::until(PATIENCE, || async { two.is_full(&format!("user{n}")).await }).await;
    }
}

#[tokio::test]
async fn after_redis_lost_everything_the_oldest_is_still_the_oldest() {
    let Some((redis, hubs)) = redis_with_hubs(replace(3)).await else { return };
    let mut open: Vec<Open> = Vec::new();
    for hub in [0, 1, 0] {
        open.push(hubs[hub].enter("anna").await.unwrap());
    }
    redis.command(&["FLUSHALL"]).await.accepted();
    wait::until(PATIENCE, || async { counted(&redis).await == 3 }).await;
    open.push(hubs[1].enter("anna").await.unwrap());
    only_the_oldest_are_replaced(&open, 1).await;
}

#[tokio::test]
async fn a_connection_costs_one_report_when_it_comes_and_none_until_the_next_check() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hour = Duration::from_secs(3_600);
    let hub = Hub::start(&redis.url(), "", &Registry::default(), refuse(1), hour).await;
    // Every report writes one field.
    let reports = async || {
        let stats = redis.command(&["INFO", "commandstats"]).await.text().to_owned();
        let calls = stats.split("cmdstat_hset:calls=").nth(1).and_then(|calls| calls.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u32>().unwrap())
    };
    let mut open = vec![hub.enter("first").await.unwrap()];
    let before = reports().await;
    for n in 0..100 {
        open.push(hub.enter(&format!("user{n}")).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(reports().await - before, 100);
}

#[tokio::test]
async fn nothing_is_left_in_redis_of_what_is_over() {
    let Some((redis, [one, _two])) = redis_with_hubs(refuse(2)).await else { return };
    let rate = Rate::new(100.0, 10).unwrap();
    one.buckets.take("anna", rate, 10).await.unwrap();
    drop(one.enter("anna").await.unwrap());
    for key in redis.command(&["KEYS", "*"]).await.items() {
        let left = redis.command(&["PTTL", key.text()]).await.integer();
        // Gone by now, or going.
        assert!(left == -2 || left > 0, "{}: {left}", key.text());
    }
    wait::until(PATIENCE, || async { redis.command(&["EXISTS", "bucket:anna"]).await.integer() == 0 }).await;
}
