//! Measures two hubs on one Redis: durable publishes per second, scripts per publish, the latency from one hub to the
//! other, and the cost of idle rooms.

use super::progress;
use super::redis::RedisServer;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Generator, Load, Outcome, Pace, Request, StreamKind};
use crate::process::cpu_seconds;
use crate::stats::{Latency, rounded};
use serde::Serialize;

/// Larger than the number of outstanding requests at this rate, so that no publish waits for an idle caller.
const PUBLISHERS: usize = 64;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FleetReport {
    pub(crate) publishers: usize,
    pub(crate) published_per_second: f64,
    pub(crate) publish_latency: Latency,
    pub(crate) refused: u64,
    /// Scripts that Redis ran per publish: each round trip is one script.
    pub(crate) scripts_per_publish: f64,
    /// The load of `across`: events are published at one hub and received at the other.
    pub(crate) rooms: u32,
    pub(crate) subscribers_per_room: usize,
    pub(crate) rate: u32,
    pub(crate) across: Outcome,
    pub(crate) idle: IdleReport,
}

/// Rooms with one subscriber each and without events.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IdleReport {
    pub(crate) rooms: usize,
    pub(crate) redis_commands_per_second: f64,
    /// Percent of one core.
    pub(crate) redis_cpu_percent: f64,
    pub(crate) hub_cpu_percent: f64,
    pub(crate) closed_streams: usize,
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<FleetReport> {
    let redis = RedisServer::start()?;
    let start = || hubs.start_with(&[("REDIS_URL", redis.url()), ("RECORDS", "off".to_owned())]);
    let publishers = sizes.publishers[sizes.publishers.len() - 1];
    let (one, other) = (start()?, start()?);
    progress(&format!("fleet: {publishers} publishers, {} rooms", sizes.publish_rooms));
    let mut generator = Generator::new(one.target())?;
    generator.open_callers(publishers, Request::Publish { events: 1 })?;
    let mut load = Load {
        pace: Pace::ClosedLoop,
        window: sizes.warm_up,
        subjects: sizes.publish_rooms,
        drain: sizes.drain,
    };
    generator.run(&load)?;
    load.window = sizes.publish_window;
    let before = redis.calls_of("evalsha")?;
    let published = generator.run(&load)?;
    let scripts = redis.calls_of("evalsha")? - before;
    drop(generator);
    let across = measure_across(&one, &other, sizes)?;
    Ok(FleetReport {
        publishers,
        published_per_second: published.published_per_second,
        publish_latency: published.publish_latency,
        refused: published.refused,
        scripts_per_publish: rounded(scripts as f64 / published.published.max(1) as f64, 3),
        rooms: sizes.rooms,
        subscribers_per_room: sizes.per_room,
        rate: sizes.rooms_rate,
        across,
        idle: measure_idle(&redis, &one, sizes)?,
    })
}

fn measure_across(one: &Server, other: &Server, sizes: &Sizes) -> Result<Outcome> {
    let Sizes { rooms, per_room, rooms_rate: rate, .. } = *sizes;
    progress(&format!("fleet: {rooms} rooms of {per_room} at one hub, {rate} publishes/s at the other"));
    let mut generator = Generator::new(one.target())?;
    generator.open_streams(rooms as usize * per_room, StreamKind::Rooms(rooms))?;
    generator.read_for(sizes.settle_time)?;
    generator.open_callers_at(&other.target(), PUBLISHERS, Request::Publish { events: 1 })?;
    let pace = Pace::PerSecond(rate);
    let mut load = Load { pace, window: sizes.warm_up, subjects: rooms, drain: sizes.drain };
    generator.run(&load)?;
    load.window = sizes.delivery_window;
    generator.run(&load)
}

fn measure_idle(redis: &RedisServer, hub: &Server, sizes: &Sizes) -> Result<IdleReport> {
    let rooms = sizes.subscribers;
    progress(&format!("fleet: {rooms} idle rooms"));
    let mut generator = Generator::new(hub.target())?;
    generator.open_streams(rooms, StreamKind::Rooms(u32::try_from(rooms)?))?;
    generator.read_for(sizes.settle_time)?;
    let usage = || -> Result<(u64, f64, f64)> {
        Ok((redis.processed_commands()?, cpu_seconds(redis.pid())?, cpu_seconds(hub.pid())?))
    };
    let before = usage()?;
    generator.read_for(sizes.idle_settle_time)?;
    let after = usage()?;
    let seconds = sizes.idle_settle_time.as_secs_f64();
    Ok(IdleReport {
        rooms,
        redis_commands_per_second: rounded((after.0 - before.0) as f64 / seconds, 0),
        redis_cpu_percent: rounded((after.1 - before.1) / seconds * 100.0, 1),
        hub_cpu_percent: rounded((after.2 - before.2) / seconds * 100.0, 1),
        closed_streams: generator.streams_closed_by_server(),
    })
}

impl FleetReport {
    pub(crate) fn print(&self) {
        let (publish, across) = (self.publish_latency, self.across.delivery_latency);
        println!(
            "fleet     {} publishers {:.0}/s   p50 {:.2} p95 {:.2} p99 {:.2} ms, {} scripts per publish",
            self.publishers,
            self.published_per_second,
            publish.p50_ms,
            publish.p95_ms,
            publish.p99_ms,
            self.scripts_per_publish
        );
        println!(
            "fleet     {} x {} over two hubs, {} publishes/s   p50 {:.2} p95 {:.2} p99 {:.2} ms",
            self.rooms, self.subscribers_per_room, self.rate, across.p50_ms, across.p95_ms, across.p99_ms
        );
        let idle = &self.idle;
        println!(
            "fleet     {} idle rooms: {:.0} commands/s, Redis {:.1} %, hub {:.1} % of a core",
            idle.rooms, idle.redis_commands_per_second, idle.redis_cpu_percent, idle.hub_cpu_percent
        );
    }
}
