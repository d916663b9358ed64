//! Personal streams on which nothing happens, each another person's: memory, and what the database is asked meanwhile.

use super::report::{IdleReport, WorkReport};
use crate::Result;
use crate::generator::{Follow, Generator};
use crate::measure::database::Database;
use crate::measure::memory::{before, per_stream};
use crate::measure::progress;
use crate::measure::server::Server;
use crate::measure::sizes::Sizes;
use crate::process::resident_kib;
use crate::stats::rounded;

pub(super) fn measure(database: &Database, hub: &Server, sizes: &Sizes) -> Result<IdleReport> {
    let streams = sizes.subscribers;
    progress(&format!("inbox: {streams} idle personal streams"));
    let mut generator = Generator::new(hub.target())?;
    let before_kib = before(hub, &mut generator, Follow::People, sizes)?;
    let at_first = database.work()?;
    generator.open_streams(streams, Follow::People)?;
    generator.stay_idle(sizes.counted_after)?;
    let opened = database.work()?;
    let after_kib = resident_kib(hub.pid())?;
    let work = match at_first.zip(opened) {
        None => None,
        Some((at_first, opened)) => {
            generator.stay_idle(sizes.inbox_idle)?;
            let idle = database.work()?.unwrap_or(opened).saturating_sub(opened);
            Some(WorkReport {
                unit: database.unit(),
                per_stream_opened: rounded(opened.saturating_sub(at_first) as f64 / streams as f64, 2),
                per_second_idle: rounded(idle as f64 / sizes.inbox_idle.as_secs_f64(), 1),
            })
        }
    };
    Ok(IdleReport {
        streams,
        before_kib,
        after_kib,
        per_stream_kib: per_stream(before_kib, after_kib, streams),
        work,
        closed_streams: generator.streams_closed_by_server(),
    })
}
