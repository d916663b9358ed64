//! A Redis that answers and takes no writes: a master that was demoted, one without memory or without replicas. The
//! hub says so, is not ready, and goes on by itself when writes are taken again.

use bongsu_testkit::proxy::Proxy;
use bongsu_testkit::redis::{Cluster, Redis};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::json;

use super::{Fleet, LONG, health, hub, wait_connected};

/// An address where nobody listens: a replica of it keeps its data and follows nobody.
const NOBODY: [&str; 2] = ["127.0.0.1", "9"];

async fn is_ready(hub: &Hub) -> bool {
    let answer = Api::at(&hub.url("")).anonymous().get("/ready").await;
    let is_ready = answer.status == 200;
    if !is_ready {
        answer.expect_error(503, "REDIS5001");
    }
    is_ready
}

/// Waits until the hub says why Redis takes no writes, and is not ready any more.
async fn expect_degraded(hub: &Hub, reason: &str) {
    wait::until(LONG, async || health(hub).await["degraded"].to_string().contains(reason)).await;
    let health = health(hub).await;
    assert_eq!(
        (&health["status"], &health["redisConnected"]),
        (&json!("degraded"), &json!(true)),
        "{health}"
    );
    assert!(!is_ready(hub).await, "ready, although {health}");
}

/// Waits until everything is well again, and makes sure that what is published reaches the stream.
async fn expect_recovery(hub: &Hub, stream: &mut Stream, n: u64) {
    wait_connected(hub, true).await;
    assert!(is_ready(hub).await);
    Api::new(hub).publish_to(42, "a.b", json!({"n": n})).await;
    assert_eq!(stream.expect_event("a.b", LONG).await.json()["n"], n);
}

async fn open(hub: &Hub) -> Stream {
    let request = Stream::request(hub, "/api/v1/rooms/42/stream").person(7);
    request.open().await.expect("a stream")
}

#[tokio::test]
async fn a_redis_that_takes_no_writes_is_told_of_until_it_takes_them_again() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let hub = &fleet.hubs[0];
    let mut stream = open(hub).await;
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {}});
    let replica_of = ["REPLICAOF", NOBODY[0], NOBODY[1]];
    let cases = [
        (&replica_of[..], &["REPLICAOF", "NO", "ONE"][..], "read-only", (503, "REDIS5001")),
        (
            &["CONFIG", "SET", "maxmemory", "1"],
            &["CONFIG", "SET", "maxmemory", "0"],
            "maxmemory",
            (500, "REDIS5002"),
        ),
        (
            &["CONFIG", "SET", "min-replicas-to-write", "1"],
            &["CONFIG", "SET", "min-replicas-to-write", "0"],
            "min-replicas-to-write",
            (500, "REDIS5002"),
        ),
    ];
    for (n, (refuse, accept, reason, (status, code))) in cases.into_iter().enumerate() {
        redis.command(refuse).await.accepted();
        Api::new(hub).publish(&event).await.expect_error(status, code);
        for hub in &fleet.hubs {
            expect_degraded(hub, reason).await;
        }
        redis.command(accept).await.accepted();
        expect_recovery(hub, &mut stream, n as u64).await;
    }
}

#[tokio::test]
async fn one_server_of_a_cluster_that_takes_no_writes_is_told_of() {
    if !tier::needs_engine("redis") {
        return;
    }
    let cluster = Cluster::start().await;
    let hub = hub(&cluster.url()).start().await;
    let api = Api::new(&hub);
    let publish =
        async |room: &str| api.publish(&json!({"roomId": room, "eventType": "a.b", "data": {}})).await;
    for at in 0..3 {
        let node = &cluster.nodes()[at];
        node.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await.accepted();
        expect_degraded(&hub, "min-replicas-to-write").await;
        let mut refused = 0;
        for n in 0..30 {
            let room = format!("r{n}");
            let slot = Cluster::slot_of(format!("room:events:{room}"));
            if cluster.node_of(slot).await == at {
                publish(&room).await.expect_error(500, "REDIS5002");
                refused += 1;
            } else {
                publish(&room).await.expect(200);
            }
        }
        assert!(refused > 0, "no room is kept by server {at}");
        node.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await.accepted();
        wait_connected(&hub, true).await;
    }
}

#[tokio::test]
async fn a_hub_leaves_a_demoted_master_for_the_new_one_with_commands_and_subscriptions() {
    if !tier::needs_engine("redis") {
        return;
    }
    let (old, new) = (Redis::start().await, Redis::start().await);
    let proxy = Proxy::start(old.addr()).await;
    let hub = hub(&format!("redis://{}", proxy.addr())).start().await;
    let mut stream = open(&hub).await;
    new.command(&["REPLICAOF", "127.0.0.1", &old.addr().port().to_string()]).await.accepted();
    wait::until(LONG, async || new.info("master_link_status").await == "up").await;
    // The address leads to the new master from now on, and nobody cuts the connections to the old one. That one
    // follows nobody: what it does not get by itself is not told to its subscribers.
    proxy.set_target(new.addr());
    new.command(&["REPLICAOF", "NO", "ONE"]).await.accepted();
    old.command(&["REPLICAOF", NOBODY[0], NOBODY[1]]).await.accepted();
    let is_heard = async |redis: &Redis| {
        let channels = redis.command(&["PUBSUB", "SHARDCHANNELS", "*"]).await.accepted();
        channels.items().iter().any(|channel| channel.text() == "{room:events:42}:bus")
    };
    wait::until(LONG, async || is_heard(&new).await && !is_heard(&old).await).await;
    expect_recovery(&hub, &mut stream, 1).await;
}
