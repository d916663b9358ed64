//! A slot of a Cluster moves to another server and back while a room of it is published to and listened to.

use bongsu_testkit::redis::Cluster;
use bongsu_testkit::{Rng, tier, wait};

use super::load::{Load, ROOMS, follow, scene};
use super::{Fleet, LONG};

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
                while migration.move_keys(100).await > 0 {}
                migration.finish().await;
                load.go_on(20).await;
                landed += usize::from(load.crossed() > before);
                assert_eq!(cluster.node_of(slot).await, to);
            }
        }
        landed
    };
    let landed = scene(name, &fleet, &load, follow(&fleet).await, faults).await;
    assert_eq!(landed, 2 * rounds, "moves that landed while requests were in flight");
}
