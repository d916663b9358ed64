//! Measures idle personal streams, each of another person: their memory, and the work of the database.

use super::report::{IdleReport, WorkReport};
use crate::Result;
use crate::generator::{Generator, StreamKind};
use crate::measure::database::Database;
use crate::measure::memory::{baseline_kib, kib_per_stream};
use crate::measure::progress;
use crate::measure::server::Server;
use crate::measure::sizes::Sizes;
use crate::process::resident_kib;
use crate::stats::rounded;

pub(super) fn measure(database: &Database, hub: &Server, sizes: &Sizes) -> Result<IdleReport> {
    let streams = sizes.subscribers;
    progress(&format!("inbox: {streams} idle personal streams"));
    let mut generator = Generator::new(hub.target())?;
    let before_kib = baseline_kib(hub, &mut generator, StreamKind::People, sizes)?;
    let work_before = database.processed_work()?;
    generator.open_streams(streams, StreamKind::People)?;
    generator.read_for(sizes.stats_delay)?;
    let work_opened = database.processed_work()?;
    let after_kib = resident_kib(hub.pid())?;
    let work = match work_before.zip(work_opened) {
        None => None,
        Some((work_before, work_opened)) => {
            generator.read_for(sizes.idle_window)?;
            let idle = database.processed_work()?.unwrap_or(work_opened).saturating_sub(work_opened);
            Some(WorkReport {
                unit: database.work_unit(),
                per_stream_opened: rounded(
                    work_opened.saturating_sub(work_before) as f64 / streams as f64,
                    2,
                ),
                per_second_idle: rounded(idle as f64 / sizes.idle_window.as_secs_f64(), 1),
            })
        }
    };
    Ok(IdleReport {
        streams,
        before_kib,
        after_kib,
        per_stream_kib: kib_per_stream(before_kib, after_kib, streams),
        work,
        closed_streams: generator.streams_closed_by_server(),
    })
}
