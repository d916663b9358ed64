//! Measures the inbox on each kind of database: notifying persons, reading from large inboxes, the latency of
//! notifications to personal streams, and the cost of idle personal streams.
//!
//! `idle` has the measurement that needs a hub of its own, `report` the figures.

mod idle;
mod report;

pub(crate) use report::InboxReport;

use super::database::{Database, DatabaseKind};
use super::progress;
use super::server::{HubStarter, Server};
use super::sizes::Sizes;
use crate::Result;
use crate::generator::{FIRST_PERSON, Generator, Load, Outcome, Pace, Request, StreamKind};
use crate::stats::rounded;
use bongsu_testkit::tokens;
use report::{LiveReport, NotifyReport, ReadingReport};
use std::rc::Rc;
use std::time::Instant;

/// Larger than the number of outstanding requests at these rates, so that no request waits for an idle caller.
const PACED_CALLERS: usize = 64;
const MAX_TARGETS: u32 = 1_000;
/// The targets of one request, and the number of callers.
const NOTIFY_LOADS: [(u32, usize); 2] = [(1, 16), (MAX_TARGETS, 4)];

pub(crate) fn measure(hubs: &HubStarter, sizes: &Sizes) -> Result<Vec<InboxReport>> {
    DatabaseKind::ALL.into_iter().map(|kind| measure_on(kind, hubs, sizes)).collect()
}

fn measure_on(kind: DatabaseKind, hubs: &HubStarter, sizes: &Sizes) -> Result<InboxReport> {
    let people = u32::try_from(sizes.subscribers)?;
    let tokens: Rc<[String]> = (0..people).map(|number| tokens::token(FIRST_PERSON + number)).collect();
    let database = Database::start(kind)?;
    let measurement = InboxMeasurement { name: kind.name(), people, sizes };
    let hub = hubs.start_for(Rc::clone(&tokens), &database.settings())?;
    let mut rows = 0;
    let mut notify = Vec::new();
    for (targets, callers) in NOTIFY_LOADS {
        notify.push(measurement.measure_notify(&hub, targets, callers, &mut rows)?);
    }
    measurement.fill_inbox(&hub, &mut rows)?;
    let reading = measurement.measure_reading(&hub, rows)?;
    let live = measurement.measure_live(&hub)?;
    drop(hub);
    // A new hub, because memory that the previous one had used and released would hide the memory of the streams.
    let hub = hubs.start_for(tokens, &database.settings())?;
    let idle = idle::measure(&database, &hub, sizes)?;
    Ok(InboxReport { database: kind.name(), notify, reading, live, idle })
}

struct InboxMeasurement<'a> {
    name: &'static str,
    people: u32,
    sizes: &'a Sizes,
}

impl InboxMeasurement<'_> {
    fn measure_notify(
        &self,
        hub: &Server,
        targets: u32,
        callers: usize,
        rows: &mut u64,
    ) -> Result<NotifyReport> {
        progress(&format!("inbox: {}, {callers} callers notify {targets} targets each", self.name));
        let mut generator = Generator::new(hub.target())?;
        generator.open_callers(callers, Request::Notify { targets })?;
        let mut load = self.load(Pace::ClosedLoop, self.group_count(targets));
        let warm_up = generator.run(&load)?;
        load.window = self.sizes.inbox_window;
        let outcome = generator.run(&load)?;
        *rows += (warm_up.published + outcome.published) * u64::from(targets);
        Ok(NotifyReport {
            targets,
            callers,
            per_second: outcome.published_per_second,
            entries_per_second: rounded(outcome.published_per_second * f64::from(targets), 0),
            latency: outcome.publish_latency,
            refused: warm_up.refused + outcome.refused,
        })
    }

    /// Notifies persons until the inbox has enough rows, through the API, so that the hub itself writes what is read
    /// later. A slow machine stops at the time limit; the report has the number of rows.
    fn fill_inbox(&self, hub: &Server, rows: &mut u64) -> Result<()> {
        let (targets, callers) = NOTIFY_LOADS[NOTIFY_LOADS.len() - 1];
        progress(&format!("inbox: {}, filling up to {} rows", self.name, self.sizes.inbox_rows));
        let mut generator = Generator::new(hub.target())?;
        generator.open_callers(callers, Request::Notify { targets })?;
        let load = self.load(Pace::ClosedLoop, self.group_count(targets));
        let started = Instant::now();
        while *rows < self.sizes.inbox_rows && started.elapsed() < self.sizes.fill_timeout {
            *rows += generator.run(&load)?.published * u64::from(targets);
        }
        Ok(())
    }

    fn measure_reading(&self, hub: &Server, rows: u64) -> Result<ReadingReport> {
        let (people, rate) = (self.people, self.sizes.reading_rate);
        let measure_path = |path: &'static str| {
            progress(&format!("inbox: {}, {rate} x GET {path} per second, {rows} rows", self.name));
            let mut generator = Generator::new(hub.target())?;
            generator.open_callers(PACED_CALLERS, Request::Get(path))?;
            self.warm_and_run(&mut generator, rate, people)
        };
        let unread = measure_path("/api/v1/notifications/unread")?;
        let list = measure_path("/api/notifications?limit=20")?;
        Ok(ReadingReport {
            rows,
            people,
            rate,
            unread: unread.publish_latency,
            list: list.publish_latency,
            refused: unread.refused + list.refused,
        })
    }

    /// Measures the time from the sending of a notification to the arrival of its frame at the target, which is a
    /// little more than the time since its inbox entry was stored.
    fn measure_live(&self, hub: &Server) -> Result<LiveReport> {
        let people = self.sizes.live_people.min(self.people);
        let rate = self.sizes.live_rate;
        progress(&format!("inbox: {}, {people} streams, {rate} notifications per second", self.name));
        let mut generator = Generator::new(hub.target())?;
        generator.open_streams(people as usize, StreamKind::People)?;
        generator.read_for(self.sizes.settle_time)?;
        generator.open_callers(PACED_CALLERS, Request::Notify { targets: 1 })?;
        let outcome = self.warm_and_run(&mut generator, rate, people)?;
        Ok(LiveReport { people, rate, outcome })
    }

    fn warm_and_run(&self, generator: &mut Generator, rate: u32, subjects: u32) -> Result<Outcome> {
        let mut load = self.load(Pace::PerSecond(rate), subjects);
        generator.run(&load)?;
        load.window = self.sizes.inbox_window;
        generator.run(&load)
    }

    fn load(&self, pace: Pace, subjects: u32) -> Load {
        Load { pace, window: self.sizes.warm_up, subjects, drain: self.sizes.drain }
    }

    /// The number of requests with this many targets that reach every person once.
    fn group_count(&self, targets: u32) -> u32 {
        (self.people / targets).max(1)
    }
}
