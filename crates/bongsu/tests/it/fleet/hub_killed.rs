//! A hub is killed: its clients go on at the other one, from the last event that they had.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::{Rng, tier};

use super::Fleet;
use super::load::{Load, scene, wander};

#[tokio::test]
async fn clients_of_a_hub_that_is_killed_go_on_at_the_other_one() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "clients_of_a_hub_that_is_killed_go_on_at_the_other_one";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let load = Load::new(fleet.apis());
    let faults = async {
        let (mut landed, mut kills) = (0, 0);
        while landed < rounds && kills < rounds * 20 {
            load.go_on(rng.range(20..300)).await;
            let (before, hub) = (load.cut(), &fleet.hubs[kills % 2]);
            kills += 1;
            load.fault(&mut rng).await;
            hub.kill9().await;
            // The other one carries everybody for a while.
            load.go_on(rng.range(20..100)).await;
            hub.restart().await;
            landed += usize::from(load.cut() > before);
        }
        landed
    };
    let landed = scene(name, &fleet, &load, wander(&fleet).await, faults).await;
    assert!(landed >= rounds, "only {landed} kills landed while requests were in flight");
}
