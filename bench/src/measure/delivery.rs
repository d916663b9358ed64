//! Measures the time from the sending of a publish to the arrival of its frame at a subscriber: in one room with many
//! subscribers, and in many rooms with few.

use super::progress;
use super::server::HubStarter;
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Generator, Load, Outcome, Pace, Request, StreamKind};
use serde::Serialize;

/// Larger than the number of outstanding requests at these rates, so that no publish waits for an idle caller.
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
    let one_room = (1, sizes.subscribers, sizes.one_room_rate);
    let many_rooms = (sizes.rooms, sizes.per_room, sizes.rooms_rate);
    let mut rows = Vec::new();
    for (rooms, subscribers_per_room, rate) in [one_room, many_rooms] {
        progress(&format!("delivery: {rooms} rooms of {subscribers_per_room}, {rate} publishes/s"));
        let hub = hubs.start()?;
        let mut generator = Generator::new(hub.target())?;
        generator.open_streams(rooms as usize * subscribers_per_room, StreamKind::Rooms(rooms))?;
        generator.read_for(sizes.settle_time)?;
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
