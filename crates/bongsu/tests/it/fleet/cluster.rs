//! A slot of a Cluster moves to another server and back while a room of it is published to and listened to; servers
//! of it stand still, one or all of them.

use bongsu_testkit::redis::{Cluster, Redis};
use bongsu_testkit::sse::Stream;
use bongsu_testkit::{Hub, Rng, tier, wait};
use serde_json::json;
use tokio::time::timeout;

use super::load::{Load, ROOMS, follow, scene};
use super::{Fleet, IN_TIME, LONG};

/// Where a Cluster keeps whom to send away. While its server does not answer, nothing is delivered anywhere.
const ORDERS: &str = "{orders}:feed";

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
                load.go_on(rng.range(20..200)).await;
                let before = load.crossed();
                load.fault(&mut rng).await;
                let mut migration = cluster.start_migration(slot, to).await;
                if round % 2 == 0 {
                    // Half of it is there and half is here for so long that hubs give up on it.
                    migration.move_keys(1).await;
                    let before = load.refused();
                    wait::until(LONG, async || load.refused() > before).await;
                }
                // A slot has a handful of keys: those of one room.
                let mut moves = 0..1_000;
                while migration.move_keys(100).await > 0 {
                    assert!(moves.next().is_some(), "the keys of slot {slot} have no end");
                }
                migration.finish().await;
                load.go_on(20).await;
                landed += usize::from(wait::holds_within(LONG, async || load.crossed() > before).await);
                assert_eq!(cluster.node_of(slot).await, to);
            }
        }
        landed
    };
    let landed = scene(name, &fleet, &load, follow(&fleet).await, faults).await;
    assert_eq!(landed, 2 * rounds, "moves that landed while requests were in flight");
}

#[tokio::test]
async fn servers_of_a_cluster_that_stand_still_or_die_hold_up_nobody_for_long_and_cost_nobody_an_event() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name =
        "servers_of_a_cluster_that_stand_still_or_die_hold_up_nobody_for_long_and_cost_nobody_an_event";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    // Longer than any of this takes: the others are not to give it up.
    let cluster = Cluster::builder().setting("cluster-node-timeout", 120_000).start().await;
    let fleet = Fleet::start(&cluster.url()).await;
    let load = Load::new(fleet.apis());
    let doorman = cluster.node_of(Cluster::slot_of(ORDERS)).await;
    let faults = async {
        let mut landed = 0;
        for round in 0..rounds {
            load.go_on(rng.range(20..200)).await;
            let room = format!("room:events:{}", rng.pick(&ROOMS));
            let home = cluster.node_of(Cluster::slot_of(room)).await;
            let (before, tried) = (load.refused(), fleet.hubs.each_ref().map(tries));
            load.fault(&mut rng).await;
            // In turn, one stands still, all stand still, one dies.
            let hit = if round % 3 == 1 { cluster.nodes() } else { &cluster.nodes()[home..=home] };
            if round % 3 == 2 {
                hit[0].kill9().await;
            } else {
                hit.iter().for_each(Redis::pause);
            }
            fleet.wait_connected(false).await;
            wait::until(LONG, async || load.refused() >= before + 20).await;
            if hit.len() == 1 {
                // By now the bus leaves that server alone for a while, and only that one.
                for (hub, tried) in fleet.hubs.iter().zip(&tried) {
                    wait::until(LONG, async || tries(hub) >= tried + 3).await;
                }
                elsewhere(&cluster, &fleet, home, home != doorman).await;
            }
            if round % 3 == 2 {
                hit[0].restart().await;
                cluster.wait_ok().await;
            } else {
                hit.iter().for_each(Redis::resume);
            }
            fleet.wait_connected(true).await;
            load.go_on(20).await;
            landed += 1;
        }
        landed
    };
    let landed = scene(name, &fleet, &load, follow(&fleet).await, faults).await;
    assert_eq!(landed, rounds, "faults that met requests");
}

/// How often the bus could not reach a server.
fn tries(hub: &Hub) -> usize {
    hub.log().matches("the bus failed to connect to Redis").count()
}

/// A room that another server has is published to as if nothing had happened, and read, unless nobody can know who was
/// sent away.
async fn elsewhere(cluster: &Cluster, fleet: &Fleet, home: usize, may_read: bool) {
    for n in 0..1_000 {
        let room = format!("elsewhere-{n}");
        let slot = Cluster::slot_of(format!("room:events:{room}"));
        // Not by asking the servers, one of which does not answer: they share the slots in three equal parts.
        if usize::from(slot) * cluster.nodes().len() / 16_384 == home {
            continue;
        }
        for (hub, api) in fleet.hubs.iter().zip(fleet.apis()) {
            let publish = async || {
                let event = json!({"roomId": room, "eventType": "a.b", "data": {}});
                let answer = timeout(IN_TIME, api.publish(&event)).await.expect("an answer in time");
                answer.expect(200).result()["streamId"].as_str().expect("an id").to_owned()
            };
            let before = publish().await;
            let request = Stream::request(hub, &format!("/api/v1/rooms/{room}/stream")).person(7);
            let mut stream = request.last_event_id(&before).open().await.expect("a stream");
            let id = publish().await;
            if may_read {
                assert_eq!(stream.expect_event("a.b", LONG).await.own_id, Some(id));
            } else {
                let close = stream.expect_event("system.close", LONG).await;
                assert_eq!((&close.json()["code"], &close.json()["reconnect"]), (&json!(3003), &json!(true)));
            }
        }
        return;
    }
    panic!("none of a thousand rooms is on another server than {home}");
}
