//! Measures resident memory per idle stream: the growth of the process, divided by the number of streams.

use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Generator, StreamKind};
use crate::process::resident_kib;
use crate::stats::rounded;
use serde::Serialize;

/// Streams that are opened and closed before the measurement, so that memory that is allocated once is not counted.
const WARM_UP_STREAMS: usize = 50;
/// Descriptors that a process needs in addition to those of its streams.
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
    let max_streams =
        (descriptors >= sizes.max_idle_streams as u64 + SPARE_DESCRIPTORS).then_some(sizes.max_idle_streams);
    if max_streams.is_none() {
        progress(&format!(
            "memory: {} streams need more than {descriptors} descriptors",
            sizes.max_idle_streams
        ));
    }
    measure_steps(&hubs.start()?, sizes, 1, [Some(sizes.subscribers), max_streams], &mut rows)?;
    measure_steps(&hubs.start()?, sizes, sizes.rooms, [Some(sizes.subscribers), None], &mut rows)?;
    Ok(rows)
}

/// Opens streams on one hub in steps, and measures its memory after each step.
fn measure_steps(
    hub: &Server,
    sizes: &Sizes,
    rooms: u32,
    steps: [Option<usize>; 2],
    rows: &mut Vec<MemoryReport>,
) -> Result<()> {
    let mut generator = Generator::new(hub.target())?;
    let before_kib = baseline_kib(hub, &mut generator, StreamKind::Rooms(rooms), sizes)?;
    let mut open = 0;
    for streams in steps.into_iter().flatten().filter(|streams| *streams > 0) {
        progress(&format!("memory: {streams} idle streams in {rooms} rooms"));
        generator.open_streams(streams.saturating_sub(open), StreamKind::Rooms(rooms))?;
        open = streams;
        generator.read_for(sizes.idle_settle_time)?;
        let after_kib = resident_kib(hub.pid())?;
        rows.push(MemoryReport {
            streams,
            rooms,
            before_kib,
            after_kib,
            per_stream_kib: kib_per_stream(before_kib, after_kib, streams),
            closed_streams: generator.streams_closed_by_server(),
        });
    }
    Ok(())
}

/// Resident memory of a hub without streams, after some streams were opened and closed.
pub(super) fn baseline_kib(
    hub: &Server,
    generator: &mut Generator,
    kind: StreamKind,
    sizes: &Sizes,
) -> Result<u64> {
    generator.open_streams(WARM_UP_STREAMS, kind)?;
    generator.read_for(sizes.settle_time)?;
    generator.close_streams();
    generator.read_for(sizes.settle_time)?;
    resident_kib(hub.pid())
}

pub(super) fn kib_per_stream(before_kib: u64, after_kib: u64, streams: usize) -> f64 {
    rounded(after_kib.saturating_sub(before_kib) as f64 / streams as f64, 2)
}
