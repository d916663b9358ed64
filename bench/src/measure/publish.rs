//! Measures durable publishes per second and their CPU time, with few and with many publishers that each wait for their
//! answer.

use super::progress;
use super::server::HubStarter;
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Generator, Load, Pace, Request};
use crate::process::cpu_seconds;
use crate::stats::{Latency, rounded};
use serde::Serialize;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PublishReport {
    pub(crate) publishers: usize,
    pub(crate) per_second: f64,
    /// CPU seconds of the hub per million publishes. Unlike the rate, they do not depend on the sync time of the disk.
    pub(crate) cpu_per_million: f64,
    pub(crate) latency: Latency,
    pub(crate) refused: u64,
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<Vec<PublishReport>> {
    let hub = hubs.start()?;
    let mut generator = Generator::new(hub.target())?;
    let mut rows = Vec::new();
    for publishers in sizes.publishers {
        progress(&format!("publish: {publishers} publishers, {} rooms", sizes.publish_rooms));
        generator.open_callers(publishers, Request::Publish { events: 1 })?;
        let mut load = Load {
            pace: Pace::ClosedLoop,
            window: sizes.warm_up,
            subjects: sizes.publish_rooms,
            drain: sizes.drain,
        };
        let warm_up = generator.run(&load)?;
        load.window = sizes.publish_window;
        let cpu_before = cpu_seconds(hub.pid())?;
        let measured = generator.run(&load)?;
        let cpu = cpu_seconds(hub.pid())? - cpu_before;
        generator.close_callers();
        rows.push(PublishReport {
            publishers,
            per_second: measured.published_per_second,
            cpu_per_million: rounded(cpu * 1e6 / measured.published.max(1) as f64, 2),
            latency: measured.publish_latency,
            refused: warm_up.refused + measured.refused,
        });
    }
    Ok(rows)
}
