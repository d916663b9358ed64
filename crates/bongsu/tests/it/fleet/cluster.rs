//! A slot of a Redis Cluster moves to another server and back while a room in it has publishers and readers; servers
//! of the Cluster are paused or killed, one of them or all.

use bongsu_testkit::redis::{Cluster, Redis};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Hub, Rng, tier, wait};
use serde_json::json;
use tokio::time::timeout;

use super::load::{Load, ROOMS, read_staying, run_scenario};
use super::{Fleet, PUBLISH_TIMEOUT, WAIT_TIMEOUT};

/// The key with the access commands. While its server does not answer, no hub delivers events.
const ACCESS_COMMANDS_KEY: &str = "{orders}:feed";

#[tokio::test]
async fn a_slot_that_moves_and_comes_back_under_load_costs_nobody_an_event() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "a_slot_that_moves_and_comes_back_under_load_costs_nobody_an_event";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    let cluster = Cluster::start().await;
    let fleet = Fleet::start(&cluster.url()).await;
    let load = Load::new(fleet.apis());
    let faults = async {
        let mut landed = 0;
        for round in 0..rounds {
            let slot = Cluster::slot_of(format!("room:events:{}", rng.pick(&ROOMS)));
            let home = cluster.node_of(slot).await;
            let away = (home + 1 + rng.below(2) as usize) % cluster.nodes().len();
            for to in [away, home] {
                load.wait_acknowledged(rng.range(20..200)).await;
                let before = load.crossed();
                load.wait_for_fault_moment(&mut rng).await;
                let mut migration = cluster.start_migration(slot, to).await;
                if round % 2 == 0 {
                    // The slot stays half migrated until hubs give up on requests to it.
                    migration.move_keys(1).await;
                    let before = load.refused();
                    wait::until(WAIT_TIMEOUT, async || load.refused() > before).await;
                }
                // A slot has a handful of keys: those of one room.
                let mut moves = 0..1_000;
                while migration.move_keys(100).await > 0 {
                    assert!(moves.next().is_some(), "the keys of slot {slot} have no end");
                }
                migration.finish().await;
                load.wait_acknowledged(20).await;
                landed +=
                    usize::from(wait::holds_within(WAIT_TIMEOUT, async || load.crossed() > before).await);
                assert_eq!(cluster.node_of(slot).await, to);
            }
        }
        landed
    };
    let landed = run_scenario(name, &fleet, &load, read_staying(&fleet).await, faults).await;
    assert_eq!(landed, 2 * rounds, "moves that landed while requests were in flight");
}

#[tokio::test]
async fn suspended_or_killed_servers_of_a_cluster_delay_events_briefly_and_lose_none() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "suspended_or_killed_servers_of_a_cluster_delay_events_briefly_and_lose_none";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    // Longer than the faults of this test last, so that the other servers do not start a failover.
    let cluster = Cluster::builder().setting("cluster-node-timeout", 120_000).start().await;
    let fleet = Fleet::start(&cluster.url()).await;
    let load = Load::new(fleet.apis());
    let commands_home = cluster.node_of(Cluster::slot_of(ACCESS_COMMANDS_KEY)).await;
    let faults = async {
        let mut landed = 0;
        for round in 0..rounds {
            load.wait_acknowledged(rng.range(20..200)).await;
            let room = format!("room:events:{}", rng.pick(&ROOMS));
            let home = cluster.node_of(Cluster::slot_of(room)).await;
            let (before, tried) = (load.refused(), fleet.hubs.each_ref().map(connect_failures));
            load.wait_for_fault_moment(&mut rng).await;
            // In turn, one server is paused, all are paused, one is killed.
            let hit = if round % 3 == 1 { cluster.nodes() } else { &cluster.nodes()[home..=home] };
            if round % 3 == 2 {
                hit[0].kill9().await;
            } else {
                hit.iter().for_each(Redis::pause);
            }
            fleet.wait_connected(false).await;
            wait::until(WAIT_TIMEOUT, async || load.refused() >= before + 20).await;
            if hit.len() == 1 {
                // By now the bus backs off from that server, and only from that one.
                for (hub, tried) in fleet.hubs.iter().zip(&tried) {
                    wait::until(WAIT_TIMEOUT, async || connect_failures(hub) >= tried + 3).await;
                }
                expect_other_servers_work(&cluster, &fleet, home, home != commands_home).await;
            }
            if round % 3 == 2 {
                hit[0].restart().await;
                cluster.wait_ok().await;
            } else {
                hit.iter().for_each(Redis::resume);
            }
            fleet.wait_connected(true).await;
            load.wait_acknowledged(20).await;
            landed += 1;
        }
        landed
    };
    let landed = run_scenario(name, &fleet, &load, read_staying(&fleet).await, faults).await;
    assert_eq!(landed, rounds, "faults that hit requests");
}

/// How often the bus failed to connect to a server.
fn connect_failures(hub: &Hub) -> usize {
    hub.log().matches("failed to open a bus connection to Redis").count()
}

/// A room on another server can be published to and read, except that reading fails while the access commands are
/// unavailable.
async fn expect_other_servers_work(cluster: &Cluster, fleet: &Fleet, home: usize, may_read: bool) {
    for n in 0..1_000 {
        let room = format!("elsewhere-{n}");
        let slot = Cluster::slot_of(format!("room:events:{room}"));
        // Computed, because one server does not answer: the servers share the slots in three equal parts.
        if usize::from(slot) * cluster.nodes().len() / 16_384 == home {
            continue;
        }
        for (hub, api) in fleet.hubs.iter().zip(fleet.apis()) {
            let publish = async || {
                let event = json!({"roomId": room, "eventType": "a.b", "data": {}});
                let answer = timeout(PUBLISH_TIMEOUT, api.publish(&event)).await.expect("an answer in time");
                answer.expect(200).result()["streamId"].as_str().expect("an id").to_owned()
            };
            let before = publish().await;
            let request = Stream::request(hub, &format!("/api/v1/rooms/{room}/stream")).person(7);
            let mut stream = request.last_event_id(&before).open().await.expect("a stream");
            let id = publish().await;
            if may_read {
                assert_eq!(stream.expect_event("a.b", WAIT_TIMEOUT).await.own_id, Some(id));
            } else {
                let close = stream.expect_event("system.close", WAIT_TIMEOUT).await;
                assert_eq!((&close.json()["code"], &close.json()["reconnect"]), (&json!(3003), &json!(true)));
            }
        }
        return;
    }
    panic!("none of a thousand rooms is on another server than {home}");
}
