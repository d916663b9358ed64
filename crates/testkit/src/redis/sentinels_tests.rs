//! Tests of a failover after a kill, which loses unreplicated writes, and after a cut, and of interrupted replication.

use std::time::Duration;

use super::*;
use crate::redis::Client;
use crate::tier::needs_engine;

const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

async fn count(redis: &Redis) -> i64 {
    redis.command(&["LLEN", "list"]).await.integer()
}

async fn push(redis: &Redis, text: &str) {
    redis.command(&["RPUSH", "list", text]).await.expect_ok();
}

#[tokio::test]
async fn a_failover_loses_what_the_replica_has_not_received() {
    if !needs_engine("sentinel") {
        return;
    }
    let set = Sentinels::start().await;
    let (old, new) = (set.master().addr(), set.replica().addr());
    let ports: Vec<String> = set.sentinels().iter().map(|sentinel| sentinel.addr().to_string()).collect();
    assert_eq!(set.url(), format!("redis+sentinel://{}/bongsu", ports.join(",")));
    push(set.master(), "replicated").await;
    wait::until(WAIT_TIMEOUT, async || count(set.replica()).await == 1).await;

    set.stop_replication();
    for _ in 0..5 {
        push(set.master(), "tail").await;
    }
    assert_eq!(
        set.master().info("connected_slaves").await,
        "1",
        "the master noticed that the replication stopped"
    );
    set.kill_master().await;
    set.wait_failover().await;
    assert_eq!((set.master().addr(), set.replica().addr()), (new, old));
    assert_eq!(count(set.master()).await, 1, "the unreplicated writes are not lost");

    push(set.master(), "after").await;
    set.replica().restart().await;
    set.wait_following().await;
    wait::until(WAIT_TIMEOUT, async || count(set.replica()).await == 2).await;
    let list = set.replica().command(&["LRANGE", "list", "0", "-1"]).await;
    assert_eq!(list.to_string(), "replicated\nafter");
}

#[tokio::test]
async fn a_master_that_is_cut_off_is_replaced_and_replication_can_stop_and_go_on() {
    if !needs_engine("sentinel") {
        return;
    }
    let set = Sentinels::builder().behind_proxies().setting("appendfsync", "no").start().await;
    let ports: Vec<String> = set.sentinel_proxies().iter().map(|proxy| proxy.addr().to_string()).collect();
    assert_eq!(set.url(), format!("redis+sentinel://{}/bongsu", ports.join(",")));
    set.stop_replication();
    push(set.master(), "late").await;
    set.resume_replication().await;
    wait::until(WAIT_TIMEOUT, async || count(set.replica()).await == 1).await;

    // A client requests the address of the master from a Sentinel.
    let mut client = Client::connect(set.sentinel_proxies()[0].addr()).await.unwrap();
    let reply = client.call(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "bongsu"]).await.unwrap();
    let addr = format!("{}:{}", reply.items()[0].text(), reply.items()[1].text());
    assert_eq!(addr, set.master_proxy().addr().to_string());
    let others = client.call(&["SENTINEL", "SENTINELS", "bongsu"]).await.unwrap().to_string();
    for proxy in &set.sentinel_proxies()[1..] {
        assert!(others.contains(&proxy.addr().port().to_string()), "{others}");
    }

    let (old, old_proxy) = (set.master().addr(), set.master_proxy());
    old_proxy.cut();
    set.wait_failover().await;
    assert_eq!(set.replica().addr(), old);
    assert_eq!(
        set.replica().info("role").await,
        "master",
        "the old master knows of the failover behind the cut"
    );
    old_proxy.heal();
    set.wait_following().await;
}
