//! Measures CPU time per delivery by kind of stream: WebSocket and SSE, personal stream and room stream.
//!
//! WebSockets and SSE streams read one room with many subscribers, in turn. For personal and room streams, one request
//! is about many persons, or about many rooms with one reader each. The cost of the same requests without readers is
//! that of storing or publishing, and is subtracted.

use super::cpu::{READ_DELAY, Rounds, measure_paced};
use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{FIRST_PERSON, Generator, Load, Outcome, Pace, Request, StreamKind};
use crate::process::cpu_seconds;
use crate::stats::{median, rounded};
use bongsu_testkit::tokens;
use serde::Serialize;
use std::rc::Rc;

/// Persons or rooms of one request, which is the maximum number of events in a batch.
const SUBJECTS_PER_REQUEST: u32 = 500;
/// Larger than the number of outstanding requests at this rate.
const CALLERS: usize = 8;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KindsReport {
    pub(crate) subscribers: usize,
    pub(crate) event_stream: Rounds,
    pub(crate) web_socket: Rounds,
    pub(crate) socket_ratio: f64,
    pub(crate) rooms: Vec<GroupRound>,
    pub(crate) personal: Vec<GroupRound>,
    pub(crate) personal_ratio: f64,
}

/// A round of requests that are about many subjects with one reader each.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GroupRound {
    /// CPU seconds per million deliveries, without the cost of the same requests without readers.
    cpu_per_million: f64,
    cpu_per_million_for_nobody: f64,
    #[serde(flatten)]
    outcome: Outcome,
}

impl KindsReport {
    pub(crate) fn faults(&self) -> u64 {
        let group_faults: u64 =
            self.rooms.iter().chain(&self.personal).map(|round| round.outcome.faults()).sum();
        self.event_stream.faults() + self.web_socket.faults() + group_faults
    }

    pub(crate) fn print(&self) {
        self.event_stream.print("event stream");
        self.web_socket.print("WebSocket");
        for (name, rounds) in [("one reader per room", &self.rooms), ("personal stream", &self.personal)] {
            for GroupRound { cpu_per_million, cpu_per_million_for_nobody, outcome } in rounds {
                println!(
                    "{name}: {cpu_per_million:>6.2} CPU s per million deliveries in addition to \
                    {cpu_per_million_for_nobody:.2} without readers, {:.0} deliveries/s, frame {} B, faults {}",
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
        event_stream.add(measure_paced(&hub, sizes, StreamKind::Rooms(1))?);
        web_socket.add(measure_paced(&hub, sizes, StreamKind::Sockets(1))?);
    }
    drop(hub);
    progress(&format!("kinds: {subscribers} rooms with one reader each and {subscribers} persons in turn"));
    let tokens: Rc<[String]> = (0..subscribers).map(|number| tokens::token(FIRST_PERSON + number)).collect();
    // Each round has a new hub: a hub keeps the subjects of closed streams in memory for a minute, in which requests
    // without readers cost more than usual.
    let measure_groups =
        |kind, request| measure_groups(&hubs.start_for(Rc::clone(&tokens), &[])?, sizes, kind, request);
    let (mut rooms, mut personal) = (Vec::new(), Vec::new());
    for _ in 0..sizes.cpu_rounds {
        let publish = Request::Publish { events: SUBJECTS_PER_REQUEST };
        rooms.push(measure_groups(StreamKind::Rooms(subscribers), publish)?);
        let notify = Request::Notify { targets: SUBJECTS_PER_REQUEST };
        personal.push(measure_groups(StreamKind::People, notify)?);
    }
    let ratio = |one: f64, other: f64| rounded(one / other.max(f64::MIN_POSITIVE), 3);
    let median_cost =
        |rounds: &[GroupRound]| median(&rounds.iter().map(|round| round.cpu_per_million).collect::<Vec<_>>());
    Ok(KindsReport {
        subscribers: sizes.subscribers,
        socket_ratio: ratio(web_socket.cpu_per_million, event_stream.cpu_per_million),
        personal_ratio: ratio(median_cost(&personal), median_cost(&rooms)),
        event_stream,
        web_socket,
        rooms,
        personal,
    })
}

/// Measures the same requests without readers, and then with one reader of each subject.
fn measure_groups(hub: &Server, sizes: &Sizes, kind: StreamKind, request: Request) -> Result<GroupRound> {
    let mut generator = Generator::new(hub.target())?;
    generator.set_read_delay(READ_DELAY);
    let groups = (u32::try_from(sizes.subscribers)? / SUBJECTS_PER_REQUEST).max(1);
    let pace = Pace::PerSecond(sizes.group_rate);
    let warm_up = Load { pace, window: sizes.warm_up, subjects: groups, drain: sizes.drain };
    let load = Load { window: sizes.cpu_window, ..warm_up };
    let run = |generator: &mut Generator| -> Result<(f64, Outcome)> {
        // New callers for each run, because the hub closes connections that are idle while thousands of streams are
        // opened.
        generator.open_callers(CALLERS, request)?;
        generator.run(&warm_up)?;
        let before = cpu_seconds(hub.pid())?;
        let outcome = generator.run(&load)?;
        let after = cpu_seconds(hub.pid())?;
        generator.close_callers();
        Ok((after - before, outcome))
    };
    let (cost_without_readers, base_outcome) = run(&mut generator)?;
    generator.open_streams(sizes.subscribers, kind)?;
    generator.group_subjects(SUBJECTS_PER_REQUEST);
    generator.read_for(sizes.settle_time)?;
    let (cost_with_readers, outcome) = run(&mut generator)?;
    generator.close_streams();
    generator.read_for(sizes.settle_time)?;
    let millions = |published: u64| (published * u64::from(SUBJECTS_PER_REQUEST)).max(1) as f64 / 1e6;
    let base_cost = cost_without_readers / millions(base_outcome.published);
    let cpu_per_million = rounded(cost_with_readers / millions(outcome.published) - base_cost, 2);
    progress(&format!(
        "kinds: {cpu_per_million} CPU s per million deliveries in addition to {base_cost:.2} without readers"
    ));
    Ok(GroupRound { cpu_per_million, cpu_per_million_for_nobody: rounded(base_cost, 2), outcome })
}
