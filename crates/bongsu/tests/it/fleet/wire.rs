//! The network path to Redis is cut, reset, or loses all bytes of one direction while its connections stay open, for
//! one hub or for both.

use bongsu_testkit::proxy::{Direction, Proxy};
use bongsu_testkit::redis::Redis;
use bongsu_testkit::{Rng, tier};

use super::load::{Load, read_staying, run_scenario};
use super::{Fleet, wait_connected};

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Commands get lost.
    ToServer,
    /// Replies and bus messages get lost: the command was executed, and the hub does not know.
    ToClient,
    Cut,
    Reset,
}

const FAULTS: [Fault; 4] = [Fault::ToServer, Fault::ToClient, Fault::Cut, Fault::Reset];

#[tokio::test]
async fn a_way_to_redis_that_breaks_in_either_direction_costs_nobody_an_event() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "a_way_to_redis_that_breaks_in_either_direction_costs_nobody_an_event";
    let (rounds, mut rng) = (tier::size(3, 50), Rng::for_test(name));
    let redis = Redis::start().await;
    let proxies = [Proxy::start(redis.addr()).await, Proxy::start(redis.addr()).await];
    let urls = proxies.each_ref().map(|proxy| format!("redis://{}", proxy.addr()));
    let fleet = Fleet::start_with_urls([&urls[0], &urls[1]]).await;
    let load = Load::new(fleet.apis());
    let faults = async {
        let mut landed = 0;
        for round in 0..rounds {
            // Every fault in turn, at one hub, at the other, and at both.
            let first = rng.below(FAULTS.len() as u64) as usize;
            for at in 0..FAULTS.len() {
                let fault = FAULTS[(first + at) % FAULTS.len()];
                let hit: &[usize] = [&[0][..], &[1], &[0, 1]][(round + at) % 3];
                // A reset is momentary and may hit no request; it is repeated then.
                for _ in 0..10 {
                    load.wait_acknowledged(rng.range(20..200)).await;
                    let before = load.refused();
                    load.wait_for_fault_moment(&mut rng).await;
                    hit.iter().for_each(|hub| begin(fault, &proxies[*hub]));
                    if !matches!(fault, Fault::Reset) {
                        for hub in hit {
                            wait_connected(&fleet.hubs[*hub], false).await;
                        }
                    }
                    hit.iter().for_each(|hub| proxies[*hub].heal());
                    fleet.wait_connected(true).await;
                    load.wait_acknowledged(1).await;
                    if load.refused() > before {
                        landed += 1;
                        break;
                    }
                }
            }
        }
        landed
    };
    let landed = run_scenario(name, &fleet, &load, read_staying(&fleet).await, faults).await;
    assert_eq!(landed, rounds * FAULTS.len(), "faults that hit requests");
}

fn begin(fault: Fault, proxy: &Proxy) {
    match fault {
        Fault::ToServer => proxy.stall(Direction::ToServer),
        Fault::ToClient => proxy.stall(Direction::ToClient),
        Fault::Cut => proxy.cut(),
        Fault::Reset => proxy.reset(),
    }
}
