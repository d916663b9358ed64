//! From the moment a publish is sent to the moment a subscriber has its frame: one crowded room, and many small ones.

use super::progress;
use super::server::HubStarter;
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Follow, Generator, Load, Outcome, Pace, Request};
use serde::Serialize;

/// More than are ever outstanding at the paces used: a publish does not wait for a free one.
const PUBLISHERS: usize = 64;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DeliveryReport {
    pub(crate) rooms: u32,
    pub(crate) subscribers_per_room: usize,
    pub(crate) rate: u32,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<Vec<DeliveryReport>> {
    let crowded = (1, sizes.subscribers, sizes.one_room_rate);
    let many = (sizes.rooms, sizes.per_room, sizes.rooms_rate);
    let mut rows = Vec::new();
    for (rooms, subscribers_per_room, rate) in [crowded, many] {
        progress(&format!("delivery: {rooms} rooms of {subscribers_per_room}, {rate} publishes/s"));
        let hub = hubs.start()?;
        let mut generator = Generator::new(hub.target())?;
        generator.open_streams(rooms as usize * subscribers_per_room, Follow::Rooms(rooms))?;
        generator.stay_idle(sizes.settle)?;
        generator.open_callers(PUBLISHERS, Request::Publish { events: 1 })?;
        let pace = Pace::PerSecond(rate);
        let mut load = Load { pace, window: sizes.warm_up, subjects: rooms, drain: sizes.drain };
        generator.run(&load)?;
        load.window = sizes.delivery_window;
        let outcome = generator.run(&load)?;
        rows.push(DeliveryReport { rooms, subscribers_per_room, rate, outcome });
    }
    Ok(rows)
}
