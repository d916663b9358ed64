//! Limits while Redis is killed or paused, or loses its data.

use std::time::Duration;

use bongsu_limits::connections::ConnectionLimitError;
use bongsu_limits::{Limit, Rate, bucket};
use bongsu_testkit::{Redis, tier, wait};

use crate::hub::{
    CHECK_INTERVAL, Hub, OpenConnection, Registry, WAIT_TIMEOUT, assert_oldest_replaced, refuse, replace,
};

/// Starts a Redis and two hubs. None when Redis is not available to this run.
async fn redis_with_hubs(limit: Limit) -> Option<(Redis, [Hub; 2])> {
    if !tier::needs_engine("redis") {
        return None;
    }
    let (redis, registry) = (Redis::start().await, Registry::default());
    let hub = async || Hub::start(&redis.url(), "", &registry, limit.clone(), CHECK_INTERVAL).await;
    let hubs = [hub().await, hub().await];
    Some((redis, hubs))
}

/// Counted connections of `anna`.
async fn counted(redis: &Redis) -> i64 {
    redis.command(&["ZCARD", "sse:test:{anna}"]).await.integer()
}

#[tokio::test]
async fn during_a_redis_outage_no_connection_is_admitted_and_open_ones_stay() {
    let Some((redis, [one, two])) = redis_with_hubs(refuse(2)).await else { return };
    let _open = one.acquire("anna").await.unwrap();
    let released = one.acquire("anna").await.unwrap();
    redis.kill9().await;
    assert!(matches!(two.acquire("anna").await, Err(ConnectionLimitError::Unavailable(_))));
    let rate = Rate::new(1.0, 1).unwrap();
    assert!(matches!(two.buckets.take("anna", rate, 1).await, Err(bucket::RateLimitError::Unavailable(_))));
    // The release is reported when Redis is back.
    drop(released);
    redis.restart().await;
    let _other = two.acquire_soon("anna").await;
    wait::until(WAIT_TIMEOUT, || async { counted(&redis).await == 2 }).await;
    assert!(two.is_full("anna").await, "the first connection still counts");
}

#[tokio::test]
async fn during_a_redis_outage_no_connection_is_replaced() {
    let Some((redis, [one, two])) = redis_with_hubs(replace(2)).await else { return };
    let mut open = vec![one.acquire("anna").await.unwrap(), two.acquire("anna").await.unwrap()];
    for is_killed in [true, false] {
        if is_killed {
            redis.kill9().await;
        } else {
            redis.pause();
        }
        for hub in [&one, &two] {
            assert!(matches!(hub.acquire("anna").await, Err(ConnectionLimitError::Unavailable(_))));
        }
        if is_killed {
            redis.restart().await;
        } else {
            redis.resume();
        }
        // Connections whose callers gave up replace no other, even when Redis receives their reports later.
        wait::until(WAIT_TIMEOUT, || async { counted(&redis).await == 2 }).await;
        assert_oldest_replaced(&open, 0).await;
    }
    open.push(one.acquire_soon("anna").await);
    assert_oldest_replaced(&open, 1).await;
}

#[tokio::test]
async fn a_paused_redis_delays_no_request_for_long_and_counts_no_abandoned_connection() {
    let Some((redis, [one, two])) = redis_with_hubs(refuse(2)).await else { return };
    let _open = one.acquire("anna").await.unwrap();
    redis.pause();
    // Redis receives the reports when it resumes. Their connections must not count then.
    for hub in [&one, &two] {
        assert!(matches!(hub.acquire("anna").await, Err(ConnectionLimitError::Unavailable(_))));
    }
    redis.resume();
    let _other = two.acquire_soon("anna").await;
    assert!(two.is_full("anna").await);
    // The two failed attempts do not count.
    wait::until(WAIT_TIMEOUT, || async { one.is_full("anna").await && two.is_full("anna").await }).await;
    assert_eq!(counted(&redis).await, 2);
}

#[tokio::test]
async fn connections_are_restored_after_redis_lost_its_data() {
    let Some((redis, [one, two])) = redis_with_hubs(refuse(1)).await else { return };
    let mut open = Vec::new();
    for n in 0..600 {
        open.push(one.acquire(&format!("user{n}")).await.unwrap());
    }
    redis.command(&["FLUSHALL"]).await.expect_ok();
    for n in (0..600).step_by(7) {
        wait::until(WAIT_TIMEOUT, || async { two.is_full(&format!("user{n}")).await }).await;
    }
}

#[tokio::test]
async fn restored_connections_keep_their_age() {
    let Some((redis, hubs)) = redis_with_hubs(replace(3)).await else { return };
    let mut open: Vec<OpenConnection> = Vec::new();
    for hub in [0, 1, 0] {
        open.push(hubs[hub].acquire("anna").await.unwrap());
    }
    redis.command(&["FLUSHALL"]).await.expect_ok();
    wait::until(WAIT_TIMEOUT, || async { counted(&redis).await == 3 }).await;
    open.push(hubs[1].acquire("anna").await.unwrap());
    assert_oldest_replaced(&open, 1).await;
}

#[tokio::test]
async fn a_connection_costs_one_report_until_the_next_check() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let hour = Duration::from_secs(3_600);
    let hub = Hub::start(&redis.url(), "", &Registry::default(), refuse(1), hour).await;
    // Every report calls HSET once.
    let reports = async || {
        let stats = redis.command(&["INFO", "commandstats"]).await.text().to_owned();
        let calls = stats.split("cmdstat_hset:calls=").nth(1).and_then(|calls| calls.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u32>().unwrap())
    };
    let mut open = vec![hub.acquire("first").await.unwrap()];
    let before = reports().await;
    for n in 0..100 {
        open.push(hub.acquire(&format!("user{n}")).await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(reports().await - before, 100);
}

#[tokio::test]
async fn closed_connections_and_full_buckets_leave_no_permanent_keys() {
    let Some((redis, [one, _two])) = redis_with_hubs(refuse(2)).await else { return };
    let rate = Rate::new(100.0, 10).unwrap();
    one.buckets.take("anna", rate, 10).await.unwrap();
    drop(one.acquire("anna").await.unwrap());
    for key in redis.command(&["KEYS", "*"]).await.items() {
        let ttl = redis.command(&["PTTL", key.text()]).await.integer();
        // -2: the key has expired meanwhile.
        assert!(ttl == -2 || ttl > 0, "{}: {ttl}", key.text());
    }
    wait::until(WAIT_TIMEOUT, || async { redis.command(&["EXISTS", "bucket:anna"]).await.integer() == 0 })
        .await;
}
