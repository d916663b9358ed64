//! Tests of a single server: durability after a kill, pause and resume, settings, failed start.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use super::*;
use crate::tier::{needs_engine, size};

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Increments a key until `stop` is not 0, and reconnects when the connection ends. `sent` counts all increments,
/// `acknowledged` those with a reply.
async fn count_up(redis: &Redis, sent: &AtomicI64, acknowledged: &AtomicI64, stop: &AtomicI64) {
    while stop.load(Ordering::SeqCst) == 0 {
        let Ok(mut client) = redis.connect().await else {
            tokio::task::yield_now().await;
            continue;
        };
        while stop.load(Ordering::SeqCst) == 0 {
            sent.fetch_add(1, Ordering::SeqCst);
            match client.call(&["INCR", "count"]).await {
                Ok(Reply::Integer(_)) => acknowledged.fetch_add(1, Ordering::SeqCst),
                Ok(_) | Err(_) => break,
            };
        }
    }
}

#[tokio::test]
async fn a_killed_server_keeps_all_acknowledged_writes() {
    if !needs_engine("redis") {
        return;
    }
    let redis = Arc::new(Redis::start().await);
    let counters = Arc::new([const { AtomicI64::new(0) }; 3]);
    let mut writers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let (redis, counters) = (Arc::clone(&redis), Arc::clone(&counters));
        writers.spawn(async move { count_up(&redis, &counters[0], &counters[1], &counters[2]).await });
    }
    let (addr, mut pids) = (redis.addr(), Vec::new());
    for _ in 0..size(3, 20) {
        let before = counters[1].load(Ordering::SeqCst);
        wait::until(WAIT_TIMEOUT, async || counters[1].load(Ordering::SeqCst) > before + 100).await;
        pids.push(redis.pid());
        redis.kill9().await;
        redis.restart().await;
    }
    counters[2].store(1, Ordering::SeqCst);
    while writers.join_next().await.is_some() {}
    let kept = redis.command(&["GET", "count"]).await.text().parse::<i64>().unwrap();
    let [sent, acknowledged, _] = &*counters;
    assert!(kept >= acknowledged.load(Ordering::SeqCst), "{kept} of {acknowledged:?}");
    assert!(kept <= sent.load(Ordering::SeqCst), "{kept} of {sent:?}");
    assert_eq!(redis.addr(), addr);
    assert!(!pids.contains(&redis.pid()));
}

#[tokio::test]
async fn a_paused_server_answers_after_the_resume() {
    if !needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let mut client = redis.connect().await.unwrap();
    let state = || std::fs::read_to_string(format!("/proc/{}/status", redis.pid())).unwrap();
    redis.pause();
    wait::until(WAIT_TIMEOUT, async || state().contains("State:\tT")).await;
    client.send(&["SET", "a", "1"]).await.unwrap();
    let mut other = Client::connect(redis.addr()).await.expect("the kernel does not accept the connection");
    other.send(&["PING"]).await.unwrap();
    assert!(state().contains("State:\tT"));
    redis.resume();
    assert_eq!(client.read().await.unwrap().text(), "OK");
    assert_eq!(other.read().await.unwrap().text(), "PONG");
    assert_eq!(redis.command(&["GET", "a"]).await, Reply::Text("1".to_owned()));
}

#[tokio::test]
async fn the_server_runs_with_the_given_settings() {
    if !needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let all = ["appendonly", "appendfsync", "save", "bind"];
    let words: Vec<&str> = ["CONFIG", "GET"].into_iter().chain(all).collect();
    let reply = redis.command(&words).await.to_string();
    for line in ["appendonly\nyes", "appendfsync\nalways", "save\n", "bind\n127.0.0.1"] {
        assert!(reply.contains(line), "{reply}");
    }
    assert_eq!(redis.url(), format!("redis://{}", redis.addr()));
    assert_eq!(redis.info("aof_enabled").await, "1");
    assert_eq!(redis.info("no_such_field").await, "");
    assert!(redis.command(&["NONSENSE"]).await.error().unwrap().starts_with("ERR unknown command"));

    let builder = Redis::builder().setting("appendfsync", "everysec").setting("maxmemory", "20mb");
    let other =
        builder.setting("maxmemory-policy", "allkeys-lru").setting("requirepass", "secret").start().await;
    assert_eq!(other.url(), format!("redis://:secret@{}", other.addr()));
    assert_eq!(other.cli(&["CONFIG", "GET", "maxmemory-policy"]), "maxmemory-policy\nallkeys-lru");
    assert_eq!(other.cli(&["CONFIG", "GET", "appendfsync"]), "appendfsync\neverysec");
    let mut unauthenticated = Client::connect(other.addr()).await.unwrap();
    assert!(unauthenticated.call(&["GET", "a"]).await.unwrap().error().unwrap().starts_with("NOAUTH"));
    other.restart().await;
    assert_eq!(other.command(&["CONFIG", "GET", "maxmemory"]).await.items()[1].text(), "20971520");

    let (pid, folder) = (other.pid(), other.folder.path().to_owned());
    drop(other);
    assert!(!Path::new(&format!("/proc/{pid}")).exists() && !folder.exists());
}

#[tokio::test]
async fn a_failed_start_panics_with_the_log() {
    if !needs_engine("redis") {
        return;
    }
    let starting = tokio::spawn(Redis::builder().setting("no-such-setting", 1).start());
    let reason = starting.await.err().unwrap().into_panic().downcast::<String>().unwrap();
    assert!(reason.contains("'no-such-setting 1'"), "{reason}");
}
