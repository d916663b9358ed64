//! What a delivery costs by kind: a WebSocket beside an event stream, and a personal stream beside a room's.
//!
//! The first two read one crowded room in turn. For the other two one request is about many people, or about many rooms with
//! one reader each; what the same requests cost while nobody is connected is saving or publishing, and is taken off.

use super::cpu::{GATHER, Rounds, paced};
use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{FIRST_PERSON, Follow, Generator, Load, Outcome, Pace, Request};
use crate::process::cpu_seconds;
use crate::stats::{median, rounded};
use bongsu_testkit::tokens;
use serde::Serialize;
use std::rc::Rc;

/// People or rooms that one request is about: as many events as a batch may have.
const SUBJECTS_PER_REQUEST: u32 = 500;
/// More than are ever outstanding at the pace used.
const CALLERS: usize = 8;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KindsReport {
    pub(crate) subscribers: usize,
    pub(crate) event_stream: Rounds,
    pub(crate) web_socket: Rounds,
    pub(crate) socket_ratio: f64,
    pub(crate) rooms: Vec<Spread>,
    pub(crate) personal: Vec<Spread>,
    pub(crate) personal_ratio: f64,
}

/// Requests that are about many, each with one reader.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Spread {
    /// CPU seconds per million deliveries, without what the same requests cost for nobody.
    cpu_per_million: f64,
    cpu_per_million_for_nobody: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

impl KindsReport {
    pub(crate) fn faults(&self) -> u64 {
        let spread: u64 = self.rooms.iter().chain(&self.personal).map(|round| round.outcome.faults()).sum();
        self.event_stream.faults() + self.web_socket.faults() + spread
    }

    pub(crate) fn print(&self) {
        self.event_stream.print("event stream");
        self.web_socket.print("WebSocket");
        for (name, rounds) in [("one reader per room", &self.rooms), ("personal stream", &self.personal)] {
            for Spread { cpu_per_million, cpu_per_million_for_nobody, outcome } in rounds {
                println!(
                    "{name}: {cpu_per_million:>6.2} CPU s per million deliveries beside {cpu_per_million_for_nobody:.2} for \
                     nobody, {:.0} deliveries/s, frame {} B, faults {}",
                    outcome.delivered_per_second,
                    outcome.frame_bytes,
                    outcome.faults()
                );
            }
        }
    }
}

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<KindsReport> {
    let subscribers = u32::try_from(sizes.subscribers)?;
    progress(&format!("kinds: {subscribers} readers of one room, event streams and WebSockets in turn"));
    let hub = hubs.start()?;
    let (mut event_stream, mut web_socket) = (Rounds::default(), Rounds::default());
    for _ in 0..sizes.cpu_rounds {
        event_stream.add(paced(&hub, sizes, Follow::Rooms(1))?);
        web_socket.add(paced(&hub, sizes, Follow::Sockets(1))?);
    }
    drop(hub);
    progress(&format!("kinds: {subscribers} rooms with one reader each and {subscribers} people in turn"));
    let tokens: Rc<[String]> = (0..subscribers).map(|number| tokens::token(FIRST_PERSON + number)).collect();
    // Each on a hub of its own: one that was just followed keeps its subjects in memory for a minute, and what is for nobody
    // then costs more than it should.
    let spread = |follow, request| spread(&hubs.start_for(Rc::clone(&tokens), &[])?, sizes, follow, request);
    let (mut rooms, mut personal) = (Vec::new(), Vec::new());
    for _ in 0..sizes.cpu_rounds {
        let publish = Request::Publish { events: SUBJECTS_PER_REQUEST };
        rooms.push(spread(Follow::Rooms(subscribers), publish)?);
        let notify = Request::Notify { targets: SUBJECTS_PER_REQUEST };
        personal.push(spread(Follow::People, notify)?);
    }
    let ratio = |one: f64, other: f64| rounded(one / other.max(f64::MIN_POSITIVE), 3);
    let middle =
        |rounds: &[Spread]| median(&rounds.iter().map(|round| round.cpu_per_million).collect::<Vec<_>>());
    Ok(KindsReport {
        subscribers: sizes.subscribers,
        socket_ratio: ratio(web_socket.cpu_per_million, event_stream.cpu_per_million),
        personal_ratio: ratio(middle(&personal), middle(&rooms)),
        event_stream,
        web_socket,
        rooms,
        personal,
    })
}

/// The same requests for nobody, and then for a reader of each subject.
fn spread(hub: &Server, sizes: &Sizes, follow: Follow, request: Request) -> Result<Spread> {
    let mut generator = Generator::new(hub.target())?;
    generator.gather_for(GATHER);
    let groups = (u32::try_from(sizes.subscribers)? / SUBJECTS_PER_REQUEST).max(1);
    let pace = Pace::PerSecond(sizes.spread_rate);
    let warm_up = Load { pace, window: sizes.warm_up, subjects: groups, drain: sizes.drain };
    let load = Load { window: sizes.cpu_window, ..warm_up };
    let run = |generator: &mut Generator| -> Result<(f64, Outcome)> {
        // For each run anew: the hub closes connections that say nothing while thousands of streams are opened.
        generator.open_callers(CALLERS, request)?;
        generator.run(&warm_up)?;
        let before = cpu_seconds(hub.pid())?;
        let outcome = generator.run(&load)?;
        let after = cpu_seconds(hub.pid())?;
        generator.close_callers();
        Ok((after - before, outcome))
    };
    let (for_nobody, sent) = run(&mut generator)?;
    generator.open_streams(sizes.subscribers, follow)?;
    generator.group_subjects(SUBJECTS_PER_REQUEST);
    generator.stay_idle(sizes.settle)?;
    let (for_all, outcome) = run(&mut generator)?;
    generator.close_streams();
    generator.stay_idle(sizes.settle)?;
    let millions = |published: u64| (published * u64::from(SUBJECTS_PER_REQUEST)).max(1) as f64 / 1e6;
    let saving = for_nobody / millions(sent.published);
    let cpu_per_million = rounded(for_all / millions(outcome.published) - saving, 2);
    progress(&format!("kinds: {cpu_per_million} CPU s per million deliveries beside {saving:.2} for nobody"));
    Ok(Spread { cpu_per_million, cpu_per_million_for_nobody: rounded(saving, 2), outcome })
}
