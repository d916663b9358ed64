//! Measures CPU time per delivery of the hub and of the bare loop, with the same generator and frame size: rounds
//! alternate, and the medians are compared. Then each of the two is measured once at full speed.

use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{Generator, Load, Outcome, Pace, Request, StreamKind};
use crate::process::cpu_seconds;
use crate::stats::{median, rounded};
use serde::Serialize;
use std::time::Duration;

/// Pause of the generator before each read: short in comparison with the 250 ms between two events, and long in
/// comparison with the cost of a wake-up.
pub(super) const READ_DELAY: Duration = Duration::from_millis(2);

const ONE_ROOM: StreamKind = StreamKind::Rooms(1);

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
    /// CPU seconds per million deliveries: the median of the rounds.
    pub(crate) cpu_per_million: f64,
    pub(crate) rounds: Vec<Round>,
    pub(crate) full_speed: Option<Round>,
}

#[derive(Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Round {
    pub(crate) cpu_per_million: f64,
    /// CPU seconds of the generator, which runs on the same cores.
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
    hub.add(measure_paced(&server, sizes, ONE_ROOM)?);
    // The bare loop sends frames of the size that the hub had in its first round.
    let frame_bytes = hub.rounds[0].outcome.frame_bytes;
    let reference = Server::start_bare_loop(frame_bytes)?;
    bare.add(measure_paced(&reference, sizes, ONE_ROOM)?);
    for _ in 1..sizes.cpu_rounds {
        hub.add(measure_paced(&server, sizes, ONE_ROOM)?);
        bare.add(measure_paced(&reference, sizes, ONE_ROOM)?);
    }
    progress("cpu: full speed, hub then bare loop");
    hub.full_speed = Some(measure_full_speed(&server, sizes)?);
    bare.full_speed = Some(measure_full_speed(&reference, sizes)?);
    let ratio = rounded(hub.cpu_per_million / bare.cpu_per_million.max(f64::MIN_POSITIVE), 3);
    Ok(CpuReport { subscribers: sizes.subscribers, rate, hub, bare_loop: bare, ratio })
}

pub(crate) fn measure_reference(sizes: &Sizes, frame_bytes: usize) -> Result<Rounds> {
    let server = Server::start_bare_loop(frame_bytes)?;
    let mut rounds = Rounds::default();
    for _ in 0..sizes.cpu_rounds {
        rounds.add(measure_paced(&server, sizes, ONE_ROOM)?);
    }
    rounds.full_speed = Some(measure_full_speed(&server, sizes)?);
    Ok(rounds)
}

/// Measures one round with all subscribers, at a rate that does not saturate the machine.
pub(super) fn measure_paced(server: &Server, sizes: &Sizes, kind: StreamKind) -> Result<Round> {
    measure_round(server, sizes, kind, Pace::PerSecond(sizes.one_room_rate), sizes.cpu_window, READ_DELAY)
}

/// Measures one round of one publisher that sends its next event as soon as the previous one is answered.
fn measure_full_speed(server: &Server, sizes: &Sizes) -> Result<Round> {
    measure_round(server, sizes, ONE_ROOM, Pace::ClosedLoop, sizes.full_speed_window, Duration::ZERO)
}

fn measure_round(
    server: &Server,
    sizes: &Sizes,
    kind: StreamKind,
    pace: Pace,
    window: Duration,
    read_delay: Duration,
) -> Result<Round> {
    let mut generator = Generator::new(server.target())?;
    generator.set_read_delay(read_delay);
    generator.open_streams(sizes.subscribers, kind)?;
    generator.read_for(sizes.settle_time)?;
    generator.open_callers(1, Request::Publish { events: 1 })?;
    let warm_up_pace = Pace::PerSecond(sizes.one_room_rate);
    generator.run(&Load { pace: warm_up_pace, window: sizes.warm_up, subjects: 1, drain: sizes.drain })?;

    let generator_pid = std::process::id();
    let before = (cpu_seconds(server.pid())?, cpu_seconds(generator_pid)?);
    let outcome = generator.run(&Load { pace, window, subjects: 1, drain: sizes.drain })?;
    let after = (cpu_seconds(server.pid())?, cpu_seconds(generator_pid)?);

    // The server handles the end of all connections now, and not during the next round of the other server.
    generator.close_callers();
    generator.close_streams();
    generator.read_for(sizes.settle_time)?;
    let millions = outcome.delivered.max(1) as f64 / 1e6;
    Ok(Round {
        cpu_per_million: rounded((after.0 - before.0) / millions, 2),
        generator_cpu_per_million: rounded((after.1 - before.1) / millions, 2),
        outcome,
    })
}
