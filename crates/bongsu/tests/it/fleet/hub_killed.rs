//! A hub is killed: its clients continue on the other hub, after their last event.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::{Rng, tier};

use super::Fleet;
use super::load::{Load, read_wandering, run_scenario};

#[tokio::test]
async fn clients_of_a_killed_hub_continue_on_the_other_hub() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "clients_of_a_killed_hub_continue_on_the_other_hub";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let load = Load::new(fleet.apis());
    let faults = async {
        let (mut landed, mut kills) = (0, 0);
        while landed < rounds && kills < rounds * 20 {
            load.wait_acknowledged(rng.range(20..300)).await;
            let (before, hub) = (load.cut(), &fleet.hubs[kills % 2]);
            kills += 1;
            load.wait_for_fault_moment(&mut rng).await;
            hub.kill9().await;
            // The other hub serves all clients for a while.
            load.wait_acknowledged(rng.range(20..100)).await;
            hub.restart().await;
            landed += usize::from(load.cut() > before);
        }
        landed
    };
    let landed = run_scenario(name, &fleet, &load, read_wandering(&fleet).await, faults).await;
    assert!(landed >= rounds, "only {landed} kills landed while requests were in flight");
}
