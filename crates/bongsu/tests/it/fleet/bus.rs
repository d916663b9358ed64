//! The bus loses a single message while all connections stay up: under load the next message reveals the loss, in a
//! silent room only the comparison with the log does.

use std::collections::HashSet;
use std::time::Duration;

use bongsu_testkit::proxy::Proxy;
use bongsu_testkit::redis::Redis;
use bongsu_testkit::{Hub, Rng, proof, tier, wait};
use serde_json::json;

use super::load::{Load, ROOMS, read_staying, run_scenario};
use super::{Fleet, WAIT_TIMEOUT};

/// Time within which a published message passes the proxies.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(5);

struct LossyFleet {
    _redis: Redis,
    proxies: [Proxy; 2],
    fleet: Fleet,
}

impl LossyFleet {
    async fn start() -> Self {
        let redis = Redis::start().await;
        let proxies = [Proxy::start(redis.addr()).await, Proxy::start(redis.addr()).await];
        let urls = proxies.each_ref().map(|proxy| format!("redis://{}", proxy.addr()));
        let fleet = Fleet::start_with_urls([&urls[0], &urls[1]]).await;
        Self { _redis: redis, proxies, fleet }
    }

    fn dropped_messages(&self) -> u64 {
        self.proxies.iter().map(Proxy::dropped_messages).sum()
    }
}

#[tokio::test]
async fn a_message_that_the_bus_loses_under_load_still_reaches_everybody_in_order() {
    if !tier::needs_engine("redis") {
        return;
    }
    let name = "a_message_that_the_bus_loses_under_load_still_reaches_everybody_in_order";
    let (rounds, mut rng) = (tier::size(3, 50) as u64, Rng::for_test(name));
    let lossy = LossyFleet::start().await;
    let load = Load::new(lossy.fleet.apis());
    let faults = async {
        for _ in 0..rounds {
            load.wait_acknowledged(rng.range(20..200)).await;
            let before = lossy.dropped_messages();
            load.wait_for_fault_moment(&mut rng).await;
            let (proxy, room) = (rng.pick(&lossy.proxies), rng.pick(&ROOMS));
            proxy.drop_next_message(channel(room).as_bytes());
            wait::until(WAIT_TIMEOUT, async || lossy.dropped_messages() > before).await;
        }
        load.wait_acknowledged(20).await;
        lossy.dropped_messages() as usize
    };
    let reading = read_staying(&lossy.fleet).await;
    let landed = run_scenario(name, &lossy.fleet, &load, reading, faults).await;
    assert!(landed as u64 >= rounds, "only {landed} messages were dropped");
}

#[tokio::test]
async fn a_lost_last_message_of_a_room_still_reaches_every_stream() {
    tier::counts_events();
    if !tier::needs_engine("redis") {
        return;
    }
    let lossy = LossyFleet::start().await;
    let (rounds, [one, _]) = (tier::size(3, 50), lossy.fleet.apis());
    let hubs: &[Hub; 2] = &lossy.fleet.hubs;
    let open = async |hub| {
        let request = bongsu_testkit::sse::Stream::request(hub, "/api/v1/rooms/silent/stream");
        request.person(7).open().await.expect("a stream")
    };
    let mut streams = [open(&hubs[0]).await, open(&hubs[1]).await];
    let (mut landed, mut tries) = (0, 0);
    let (mut published, mut seen) = (Vec::new(), [Vec::new(), Vec::new()]);
    // A hub that reads the log just before the message arrives already has the event; nothing was lost then, and the
    // round is repeated.
    while landed < rounds && tries < rounds * 20 {
        tries += 1;
        let before = lossy.proxies.each_ref().map(Proxy::dropped_messages);
        // The message is dropped on the way to both hubs, so that neither of them receives it.
        lossy.proxies.iter().for_each(|proxy| proxy.drop_next_message(channel("silent").as_bytes()));
        let id = one.publish_to("silent", "a.b", json!({ "try": tries })).await;
        for (stream, seen) in streams.iter_mut().zip(&mut seen) {
            let event = stream.expect_event("a.b", WAIT_TIMEOUT).await;
            assert_eq!(event.own_id.as_ref(), Some(&id));
            seen.extend(event.own_id);
        }
        published.push(id);
        let dropped = || lossy.proxies.each_ref().map(Proxy::dropped_messages);
        let at_both = async || dropped().iter().zip(&before).all(|(now, before)| now > before);
        landed += usize::from(wait::holds_within(MESSAGE_TIMEOUT, at_both).await);
    }
    assert!(landed >= rounds, "only {landed} of {tries} messages were dropped at both hubs");
    let delivered = seen.iter().map(Vec::len).sum::<usize>();
    let distinct: usize = seen.iter().map(|ids| ids.iter().collect::<HashSet<_>>().len()).sum();
    let missing = published.len() * seen.len() - distinct;
    proof::record(
        "fleet",
        "a_lost_last_message_of_a_room_still_reaches_every_stream",
        json!({"messagesTakenOut": lossy.dropped_messages(), "delivered": delivered, "missing": missing,
            "repeated": delivered - distinct, "busReconnects": lossy.fleet.reconnects().await}),
    );
}

/// The bus channel of a room.
fn channel(room: &str) -> String {
    format!("{{room:events:{room}}}:bus")
}
