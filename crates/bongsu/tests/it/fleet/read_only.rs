//! A Redis that answers but accepts no writes: a demoted master, one without memory, or one without replicas. The hub
//! reports it, is not ready, and recovers when writes are accepted again.

use bongsu_testkit::proxy::Proxy;
use bongsu_testkit::redis::{Cluster, Redis};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Api, Hub, tier, wait};
use serde_json::json;

use super::{Fleet, WAIT_TIMEOUT, health, hub, wait_connected};

/// An address on which no server listens: a replica of it keeps its data and replicates nothing.
const NO_LISTENER: [&str; 2] = ["127.0.0.1", "9"];

async fn is_ready(hub: &Hub) -> bool {
    let answer = Api::at(&hub.url("")).anonymous().get("/ready").await;
    let is_ready = answer.status == 200;
    if !is_ready {
        answer.expect_error(503, "REDIS5001");
    }
    is_ready
}

/// Waits until the hub reports why Redis accepts no writes and is no longer ready.
async fn expect_degraded(hub: &Hub, reason: &str) {
    wait::until(WAIT_TIMEOUT, async || health(hub).await["degraded"].to_string().contains(reason)).await;
    let health = health(hub).await;
    assert_eq!(
        (&health["status"], &health["redisConnected"]),
        (&json!("degraded"), &json!(true)),
        "{health}"
    );
    assert!(!is_ready(hub).await, "ready, although {health}");
}

/// Waits until the hub is healthy again, and checks that a published event reaches the stream.
async fn expect_recovery(hub: &Hub, stream: &mut Stream, n: u64) {
    wait_connected(hub, true).await;
    assert!(is_ready(hub).await);
    Api::new(hub).publish_to(42, "a.b", json!({"n": n})).await;
    assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.json()["n"], n);
}

async fn open(hub: &Hub) -> Stream {
    let request = Stream::request(hub, "/api/v1/rooms/42/stream").person(7);
    request.open().await.expect("a stream")
}

#[tokio::test]
async fn a_read_only_redis_is_reported_until_it_accepts_writes() {
    if !tier::needs_engine("redis") {
        return;
    }
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let hub = &fleet.hubs[0];
    let mut stream = open(hub).await;
    let event = json!({"roomId": 42, "eventType": "a.b", "data": {}});
    let replica_of = ["REPLICAOF", NO_LISTENER[0], NO_LISTENER[1]];
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
        redis.command(refuse).await.expect_ok();
        Api::new(hub).publish(&event).await.expect_error(status, code);
        for hub in &fleet.hubs {
            expect_degraded(hub, reason).await;
        }
        redis.command(accept).await.expect_ok();
        expect_recovery(hub, &mut stream, n as u64).await;
    }
}

#[tokio::test]
async fn a_read_only_server_of_a_cluster_is_reported() {
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
        node.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).await.expect_ok();
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
        node.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).await.expect_ok();
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
    new.command(&["REPLICAOF", "127.0.0.1", &old.addr().port().to_string()]).await.expect_ok();
    wait::until(WAIT_TIMEOUT, async || new.info("master_link_status").await == "up").await;
    // From now on the address leads to the new master, and the connections to the old master stay open. The old
    // master replicates nothing, so its subscribers receive only what is published to it directly.
    proxy.set_target(new.addr());
    new.command(&["REPLICAOF", "NO", "ONE"]).await.expect_ok();
    old.command(&["REPLICAOF", NO_LISTENER[0], NO_LISTENER[1]]).await.expect_ok();
    let is_heard = async |redis: &Redis| {
        let channels = redis.command(&["PUBSUB", "SHARDCHANNELS", "*"]).await.expect_ok();
        channels.items().iter().any(|channel| channel.text() == "{room:events:42}:bus")
    };
    wait::until(WAIT_TIMEOUT, async || is_heard(&new).await && !is_heard(&old).await).await;
    expect_recovery(&hub, &mut stream, 1).await;
}
