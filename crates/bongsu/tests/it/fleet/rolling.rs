//! Two hubs behind a reverse proxy are restarted one after the other under load: clients reconnect on their own and
//! miss no event.

use bongsu_testkit::redis::Redis;
use bongsu_testkit::{Api, Nginx, Rng, tier, wait};
use futures_util::future::join_all;

use super::load::{Load, read_resuming, run_scenario};
use super::{Fleet, WAIT_TIMEOUT, health};

#[tokio::test]
async fn a_rolling_restart_behind_a_proxy_costs_nobody_an_event() {
    if !tier::needs_engine("redis") || !tier::needs_engine("nginx") {
        return;
    }
    let name = "a_rolling_restart_behind_a_proxy_costs_nobody_an_event";
    let (rounds, streams) = (tier::size(2, 20), tier::size(200, 1_000));
    let mut rng = Rng::for_test(name);
    let redis = Redis::start().await;
    let fleet = Fleet::start(&redis.url()).await;
    let nginx = Nginx::start(&fleet.hubs.each_ref().map(bongsu_testkit::Hub::addr)).await;
    let load = Load::new([Api::at(&nginx.url())]).steady();
    let reading = join_all((0..streams).map(|reader| read_resuming(nginx.addr(), reader)));
    let faults = async {
        let mut landed = 0;
        for hub in (0..rounds).flat_map(|_| &fleet.hubs) {
            wait_all_connected(&fleet, streams).await;
            load.wait_acknowledged(rng.range(10..50)).await;
            let own = health(hub).await["activeConnections"].as_u64().expect("a number");
            load.wait_for_fault_moment(&mut rng).await;
            assert!(hub.terminate().await.success(), "a drained hub must exit with 0");
            landed += usize::from(own > 0);
            // The other hub serves all clients.
            wait_all_connected(&fleet, streams).await;
            load.wait_acknowledged(rng.range(10..50)).await;
            hub.restart().await;
        }
        landed
    };
    let landed = run_scenario(name, &fleet, &load, reading, faults).await;
    assert_eq!(landed, 2 * rounds, "restarts of a hub that had streams\n{}", nginx.log());
}

/// Waits until the running hubs together have as many open streams as there are clients.
async fn wait_all_connected(fleet: &Fleet, streams: usize) {
    wait::until(WAIT_TIMEOUT, async || {
        let mut open = 0;
        for hub in fleet.hubs.iter().filter(|hub| !hub.has_exited()) {
            open += health(hub).await["activeConnections"].as_u64().expect("a number");
        }
        open == streams as u64
    })
    .await;
}
