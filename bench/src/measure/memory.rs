//! Resident memory per idle stream: what the process grows by, divided by the streams that it grew for.

use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Follow, Generator};
use crate::process::resident_kib;
use crate::stats::rounded;
use serde::Serialize;

/// Enough to touch every path once, too few to count.
const WARM_UP_STREAMS: usize = 50;
/// Descriptors that a process needs besides its streams.
const SPARE_DESCRIPTORS: u64 = 200;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MemoryReport {
    pub(crate) streams: usize,
    pub(crate) rooms: u32,
    pub(crate) before_kib: u64,
    pub(crate) after_kib: u64,
    pub(crate) per_stream_kib: f64,
    pub(crate) closed_streams: usize,
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes, descriptors: u64) -> Result<Vec<MemoryReport>> {
    let mut rows = Vec::new();
    let most = (descriptors >= sizes.most_idle as u64 + SPARE_DESCRIPTORS).then_some(sizes.most_idle);
    if most.is_none() {
        progress(&format!("memory: {} streams need more than {descriptors} descriptors", sizes.most_idle));
    }
    grow(&hubs.start()?, sizes, 1, [Some(sizes.subscribers), most], &mut rows)?;
    grow(&hubs.start()?, sizes, sizes.rooms, [Some(sizes.subscribers), None], &mut rows)?;
    Ok(rows)
}

/// Opens streams in steps, all in the same process, and measures after each.
fn grow(
    hub: &Server,
    sizes: &Sizes,
    rooms: u32,
    steps: [Option<usize>; 2],
    rows: &mut Vec<MemoryReport>,
) -> Result<()> {
    let mut generator = Generator::new(hub.target())?;
    let before_kib = before(hub, &mut generator, Follow::Rooms(rooms), sizes)?;
    let mut open = 0;
    for streams in steps.into_iter().flatten().filter(|streams| *streams > 0) {
        progress(&format!("memory: {streams} idle streams in {rooms} rooms"));
        generator.open_streams(streams.saturating_sub(open), Follow::Rooms(rooms))?;
        open = streams;
        generator.stay_idle(sizes.idle_settle)?;
        let after_kib = resident_kib(hub.pid())?;
        rows.push(MemoryReport {
            streams,
            rooms,
            before_kib,
            after_kib,
            per_stream_kib: per_stream(before_kib, after_kib, streams),
            closed_streams: generator.streams_closed_by_server(),
        });
    }
    Ok(())
}

/// What a hub has before there are streams, and after every path was touched once.
pub(super) fn before(hub: &Server, generator: &mut Generator, follow: Follow, sizes: &Sizes) -> Result<u64> {
    generator.open_streams(WARM_UP_STREAMS, follow)?;
    generator.stay_idle(sizes.settle)?;
    generator.close_streams();
    generator.stay_idle(sizes.settle)?;
    resident_kib(hub.pid())
}

pub(super) fn per_stream(before_kib: u64, after_kib: u64, streams: usize) -> f64 {
    rounded(after_kib.saturating_sub(before_kib) as f64 / streams as f64, 2)
}
