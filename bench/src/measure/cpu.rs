//! CPU time per delivery, the hub beside the bare loop: same generator, same frame size, rounds in turn, medians.
//! Then each once at full speed.

use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Follow, Generator, Load, Outcome, Pace, Request};
use crate::process::cpu_seconds;
use crate::stats::{median, rounded};
use serde::Serialize;
use std::time::Duration;

/// Short against the quarter of a second between two events, long against the cost of a wake-up.
pub(super) const GATHER: Duration = Duration::from_millis(2);

const ONE_ROOM: Follow = Follow::Rooms(1);

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CpuReport {
    pub(crate) subscribers: usize,
    pub(crate) rate: u32,
    pub(crate) hub: Rounds,
    pub(crate) bare_loop: Rounds,
    pub(crate) ratio: f64,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Rounds {
    /// CPU seconds per million deliveries, the median of the rounds.
    pub(crate) cpu_per_million: f64,
    pub(crate) rounds: Vec<Round>,
    pub(crate) full_speed: Option<Round>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Round {
    pub(crate) cpu_per_million: f64,
    /// What the generator itself took on the same cores.
    pub(crate) generator_cpu_per_million: f64,
    #[serde(flatten)]
    pub(crate) outcome: Outcome,
}

impl Rounds {
    pub(super) fn add(&mut self, round: Round) {
        progress(&format!("cpu:   {} CPU s per million deliveries", round.cpu_per_million));
        self.rounds.push(round);
        let each: Vec<f64> = self.rounds.iter().map(|round| round.cpu_per_million).collect();
        self.cpu_per_million = median(&each);
    }

    pub(crate) fn faults(&self) -> u64 {
        self.rounds.iter().chain(&self.full_speed).map(|round| round.outcome.faults()).sum()
    }

    pub(crate) fn print(&self, name: &str) {
        println!("{name}: {} CPU s per million deliveries (median)", self.cpu_per_million);
        for (label, round) in self
            .rounds
            .iter()
            .map(|round| ("paced", round))
            .chain(self.full_speed.iter().map(|round| ("full", round)))
        {
            let outcome = &round.outcome;
            let latency = outcome.delivery_latency;
            println!(
                "  {label:<5} {:>6.2} CPU s/M (generator {:.2}), {:>8.0} deliveries/s, p50 {:.1} p95 {:.1} p99 {:.1} ms, \
                 frame {} B, faults {}",
                round.cpu_per_million,
                round.generator_cpu_per_million,
                outcome.delivered_per_second,
                latency.p50_ms,
                latency.p95_ms,
                latency.p99_ms,
                outcome.frame_bytes,
                outcome.faults()
            );
        }
    }
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<CpuReport> {
    let rate = sizes.one_room_rate;
    progress(&format!(
        "cpu: {} subscribers of one room, {rate} events/s, hub and bare loop in turn",
        sizes.subscribers
    ));
    let server = hubs.start()?;
    let mut hub = Rounds::default();
    let mut bare = Rounds::default();
    hub.add(paced(&server, sizes, ONE_ROOM)?);
    // The hub's first round tells how large its frames are.
    let frame_bytes = hub.rounds[0].outcome.frame_bytes;
    let reference = Server::bare_loop(frame_bytes)?;
    bare.add(paced(&reference, sizes, ONE_ROOM)?);
    for _ in 1..sizes.cpu_rounds {
        hub.add(paced(&server, sizes, ONE_ROOM)?);
        bare.add(paced(&reference, sizes, ONE_ROOM)?);
    }
    progress("cpu: full speed, hub then bare loop");
    hub.full_speed = Some(full_speed(&server, sizes)?);
    bare.full_speed = Some(full_speed(&reference, sizes)?);
    let ratio = rounded(hub.cpu_per_million / bare.cpu_per_million.max(f64::MIN_POSITIVE), 3);
    Ok(CpuReport { subscribers: sizes.subscribers, rate, hub, bare_loop: bare, ratio })
}

pub(crate) fn measure_reference(sizes: &Sizes, frame_bytes: usize) -> Result<Rounds> {
    let server = Server::bare_loop(frame_bytes)?;
    let mut rounds = Rounds::default();
    for _ in 0..sizes.cpu_rounds {
        rounds.add(paced(&server, sizes, ONE_ROOM)?);
    }
    rounds.full_speed = Some(full_speed(&server, sizes)?);
    Ok(rounds)
}

/// A crowded room at a pace that leaves the machine time.
pub(super) fn paced(server: &Server, sizes: &Sizes, follow: Follow) -> Result<Round> {
    round(server, sizes, follow, Pace::PerSecond(sizes.one_room_rate), sizes.cpu_window, GATHER)
}

/// One publisher that sends as soon as it is answered.
fn full_speed(server: &Server, sizes: &Sizes) -> Result<Round> {
    round(server, sizes, ONE_ROOM, Pace::AsAnswered, sizes.full_speed_window, Duration::ZERO)
}

fn round(
    server: &Server,
    sizes: &Sizes,
    follow: Follow,
    pace: Pace,
    window: Duration,
    gather: Duration,
) -> Result<Round> {
    let mut generator = Generator::new(server.target())?;
    generator.gather_for(gather);
    generator.open_streams(sizes.subscribers, follow)?;
    generator.stay_idle(sizes.settle)?;
    generator.open_callers(1, Request::Publish { events: 1 })?;
    let paced = Pace::PerSecond(sizes.one_room_rate);
    generator.run(&Load { pace: paced, window: sizes.warm_up, subjects: 1, drain: sizes.drain })?;

    let own = std::process::id();
    let before = (cpu_seconds(server.pid())?, cpu_seconds(own)?);
    let outcome = generator.run(&Load { pace, window, subjects: 1, drain: sizes.drain })?;
    let after = (cpu_seconds(server.pid())?, cpu_seconds(own)?);

    // The server takes note of ten thousand ends now, not in the next round of its neighbour.
    generator.close_callers();
    generator.close_streams();
    generator.stay_idle(sizes.settle)?;
    let millions = outcome.delivered.max(1) as f64 / 1e6;
    Ok(Round {
        cpu_per_million: rounded((after.0 - before.0) / millions, 2),
        generator_cpu_per_million: rounded((after.1 - before.1) / millions, 2),
        outcome,
    })
}
